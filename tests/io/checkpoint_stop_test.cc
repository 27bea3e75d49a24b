// A process that is killed at any moment of a save leaves the checkpoint before it loadable. The process is this
// program again, with a filter and the point at which it ends.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dtorch/io.h"
#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "DTORCH_TEST_CHECKPOINT_FOLDER";

struct Matrix : nn::Module {
  Matrix() { w = register_parameter("w", randn({6, 5}, {.mesh = cpu_mesh({4}), .placements = {Shard(0)}})); }
  nn::Parameter w;
};

class CheckpointStops : public KernelTest {};

// What the other process runs; nothing when nobody asked.
TEST_F(CheckpointStops, SavesWhereItIsTold) {
  const char* folder = std::getenv(kFolder);
  if (folder == nullptr) GTEST_SKIP() << "is run by the other test";
  manual_seed(2);
  Matrix model;
  checkpoint::save(folder, {.model = model, .step = 2});
}

int save_in_another_process(const fs::path& folder, const std::string& point) {
  const std::string command = std::string(kFolder) + "='" + folder.string() + "' DTORCH_TEST_CHECKPOINT_STOP=" + point +
                              " exec '" + fs::read_symlink("/proc/self/exe").string() +
                              "' --gtest_filter=CheckpointStops.SavesWhereItIsTold > /dev/null 2>&1";
  return std::system(command.c_str());
}

TEST_F(CheckpointStops, TheOneBeforeLoadsWhereverASaveIsKilled) {
  if (std::getenv(kFolder) != nullptr) GTEST_SKIP();
  const fs::path folder = fs::temp_directory_path() / ("dtorch_checkpoint_stops_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  manual_seed(1);
  Matrix before;
  checkpoint::save(folder, {.model = before, .step = 1});
  // From these points on the new one is there.
  for (const auto& [point, expected] : std::vector<std::pair<std::string, int64_t>>{{"opened", 1},
                                                                                    {"chunk", 1},
                                                                                    {"chunk:4", 1},
                                                                                    {"closed", 1},
                                                                                    {"fsync:2", 1},
                                                                                    {"hash", 1},
                                                                                    {"model.h5", 1},
                                                                                    {"manifest", 1},
                                                                                    {"rename", 2},
                                                                                    {"directory", 2}}) {
    SCOPED_TRACE(point);
    fs::remove_all(folder / "step-000002");
    const int status = save_in_another_process(folder, point);
    EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 128 + SIGKILL)
        << "it wasn't killed there: " << status;
    Matrix loaded;
    checkpoint::Contents contents{.model = loaded};
    EXPECT_EQ(checkpoint::load(folder, contents).step, expected);
    if (expected == 1) {
      EXPECT_EQ(check_tensor(loaded.w.value(), before.w.value().to_host(), 0), "");
    }
  }
  fs::remove_all(folder / "step-000002");
  EXPECT_EQ(save_in_another_process(folder, "nowhere"), 0) << "what is left over doesn't disturb";
  EXPECT_EQ(checkpoint::latest(folder)->step, 2);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace dtorch::test
