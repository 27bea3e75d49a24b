// A rank that is killed at any point of a save, a disk that is full, and ranks that see different folders: what was
// complete before loads, bit by bit, and no process is left. Each run goes on from what the one before left behind; the
// program itself refuses a checkpoint that holds something else than its step says.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "dtorch/io.h"
#include "io/hdf5_file.h"
#include "runtime/base/log.h"
#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 3;  // rank 0 and nodes 0 and 1
constexpr int64_t kTensors = 2, kRows = 6, kColumns = 5;

// Where a rank is killed: at the `time`-th time that it comes to a point.
struct Kill {
  int rank = 0;
  std::string point;
  int64_t time = 1;
  std::string str() const { return "rank " + std::to_string(rank) + " at " + name(); }
  std::string name() const { return time == 1 ? point : point + ":" + std::to_string(time); }
  // Checkpoints that this run has committed by then.
  int64_t committed() const {
    const int64_t save = point == "chunk" ? (time + kTensors - 1) / kTensors : time;
    return point == "rename" || point == "directory" ? save : save - 1;
  }
};

// Of the "process N" that a run has printed: nodes 0 and 1, then rank 0.
std::vector<pid_t> ranks_in(const std::string& output) {
  const std::string word = "process ";
  std::vector<pid_t> ranks;
  for (size_t at = output.find(word); at != std::string::npos; at = output.find(word, at + 1)) {
    const size_t end = output.find_first_not_of("0123456789", at + word.size());
    if (end != std::string::npos) ranks.push_back(std::stoi(output.substr(at + word.size())));
  }
  return ranks;
}

// The folder of one series of runs.
class Series {
 public:
  explicit Series(std::string folder) : folder_(std::move(folder)) {}

  ProgramResult run(int64_t saves, int64_t keep, const std::optional<Kill>& kill, int64_t rows = kRows) const {
    ProgramOptions options{.np = kRanks};
    if (kill) {
      const std::string rank = std::to_string(kill->rank);
      options.wrapper = {"sh", "-c",
                         "test \"$OMPI_COMM_WORLD_RANK\" != " + rank +
                             " || export DTORCH_TEST_CHECKPOINT_STOP=" + kill->name() + "; exec \"$@\"",
                         "sh"};
    }
    return run_program({"checkpoint_saver", folder_, std::to_string(saves), std::to_string(rows), std::to_string(keep)},
                       options);
  }

  void run_and_kill(const Kill& kill, int64_t saves, int64_t keep) {
    SCOPED_TRACE(kill.str() + " after step " + std::to_string(newest_));
    const ProgramResult result = run(saves, keep, kill);
    EXPECT_FALSE(result.timed_out);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.errors.find("signal 9"), std::string::npos) << "it wasn't killed: " << result.errors;
    EXPECT_EQ(result.errors.find("holds something else"), std::string::npos) << result.errors;
    expect_all_ended(result.output);
    newest_ += kill.committed();
    check(keep);
  }

  void finish(int64_t keep) {
    const ProgramResult last = run(1, keep, std::nullopt);
    EXPECT_EQ(last.exit_code, 0) << last.errors;
    ++newest_;
    check(keep);
    for (const auto& entry : fs::directory_iterator(folder_))
      EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path() << " is left over";
  }

  // The newest and those before it are complete and hold their values.
  void check(int64_t keep) const {
    if (newest_ == 0) return;
    std::set<int64_t> complete;
    for (const checkpoint::Listed& listed : checkpoint::list(folder_)) {
      if (listed.problem.empty()) complete.insert(listed.step);
    }
    ASSERT_FALSE(complete.empty());
    EXPECT_EQ(*complete.rbegin(), newest_);
    for (int64_t step = keep > 0 ? std::max<int64_t>(newest_ - keep + 1, 1) : 1; step <= newest_; ++step)
      EXPECT_TRUE(complete.contains(step)) << "step " << step << " is lost";
    std::ostringstream name;
    name << "step-" << std::string(6 - std::to_string(newest_).size(), '0') << newest_;
    const io::Hdf5File file(fs::path(folder_) / name.str() / "model.h5", io::Hdf5File::Mode::kRead);
    for (const auto& [tensor, shape] : {std::pair("w", Shape{kRows, kColumns}), std::pair("b", Shape{kRows})}) {
      std::vector<double> values(static_cast<size_t>(shape.num_elements()));
      file.read_box(std::string("model/") + tensor, whole(shape), values.data());
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], static_cast<double>(newest_) * 1e6 + static_cast<double>(i)) << tensor << " at " << i;
    }
  }

 private:
  static void expect_all_ended(const std::string& output) {
    const std::vector<pid_t> ranks = ranks_in(output);
    EXPECT_EQ(ranks.size(), static_cast<size_t>(kRanks)) << output;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    // mpirun may be gone before the last rank is.
    while (std::any_of(ranks.begin(), ranks.end(), process_exists) && std::chrono::steady_clock::now() < until)
      ::usleep(10000);
    for (pid_t rank : ranks) EXPECT_FALSE(process_exists(rank)) << "process " << rank << " is left";
  }

  const std::string folder_;
  int64_t newest_ = 0;  // step of the newest complete checkpoint
};

class CheckpointKills : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);  // what is passed over is expected here
    folder_ = scratch_folder("checkpoint_kills");
  }
  void TearDown() override { fs::remove_all(folder_); }
  // Runs whose time is mostly waiting, side by side.
  void in_series(const std::vector<Kill>& kills, int64_t saves, int64_t keep) {
    constexpr size_t kSeries = 3;
    std::vector<std::thread> threads;
    for (size_t first = 0; first < kSeries; ++first) {
      threads.emplace_back([&, first] {
        Series series(folder_ + "/" + std::to_string(first));
        for (size_t i = first; i < kills.size(); i += kSeries) series.run_and_kill(kills[i], saves, keep);
        series.finish(keep);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::string folder_;
};

const std::vector<std::string> kPartPoints = {"opened", "chunk", "closed", "fsync", "hash"};
const std::vector<std::string> kWholePoints = {"model.h5", "manifest", "rename", "directory"};

// Every point of the first save, a run's synchronous one or asynchronous one in turn.
TEST_F(CheckpointKills, AtEveryPointOnEveryRoleTheNewestCompleteOneLoads) {
  std::vector<Kill> kills;
  for (const std::string& point : kWholePoints) kills.push_back({0, point});
  for (const int node : {1, 2}) {
    for (const std::string& point : kPartPoints) {
      for (int64_t time = 1; time <= (point == "chunk" ? kTensors : 1); ++time) kills.push_back({node, point, time});
    }
  }
  in_series(kills, 1, 0);
}

TEST_F(CheckpointKills, AtThirtyRandomPointsTheNewestCompleteOneLoads) {
  constexpr int64_t kSaves = 3;
  std::mt19937 random(20261130);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<Kill> kills;
  while (kills.size() < 30) {
    const int rank = static_cast<int>(below(kRanks));
    const std::string point =
        rank == 0 ? kWholePoints[below(kWholePoints.size())] : kPartPoints[below(kPartPoints.size())];
    const int64_t times = kSaves * (point == "chunk" ? kTensors : 1);
    kills.push_back({rank, point, 1 + static_cast<int64_t>(below(static_cast<size_t>(times)))});
  }
  in_series(kills, kSaves, 2);
}

bool is_saving(const std::string& folder) {
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with(".tmp-");
  });
}

// Node 1 stands still in the middle of a save for longer than a program has to answer a stop signal (8 s).
TEST_F(CheckpointKills, AStopSignalWaitsForTheSaveThatIsUnderWay) {
  using Clock = std::chrono::steady_clock;
  const std::string saved = folder_ + "/saved";
  std::optional<Clock::time_point> stopped;
  bool goes_on = false, signalled = false;
  ProgramOptions options{.np = kRanks};
  options.watch = [&](const std::string& output, pid_t) {
    const std::vector<pid_t> ranks = ranks_in(output);
    if (ranks.size() < kRanks) return;
    if (!stopped && fs::exists(saved + "/step-000001")) {
      ASSERT_EQ(::kill(ranks[1], SIGSTOP), 0);
      stopped = Clock::now();
    } else if (stopped && !goes_on && Clock::now() - *stopped > std::chrono::seconds(11)) {
      goes_on = true;
      ASSERT_EQ(::kill(ranks[1], SIGCONT), 0);
    } else if (stopped && !signalled && Clock::now() - *stopped > std::chrono::seconds(1) && is_saving(saved)) {
      signalled = true;  // rank 0 is in a save that node 1 doesn't answer
      ASSERT_EQ(::kill(ranks[2], SIGTERM), 0);
    }
  };
  const ProgramResult result = run_program({"checkpoint_saver", saved, "1000000", "6", "2"}, options);
  ASSERT_TRUE(goes_on) << result.output << result.errors;
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  for (const auto& entry : fs::directory_iterator(saved))
    EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path() << " is left over";
  for (const checkpoint::Listed& listed : checkpoint::list(saved)) EXPECT_EQ(listed.problem, "");
}

// A mount that this process and those it starts see; false where the system doesn't allow it.
bool mount_small_disk(const std::string& at, const std::string& size) {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", at.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

TEST_F(CheckpointKills, AFullDiskIsOneSentenceAndWhatWasThereLoads) {
  const std::string disk = folder_ + "/disk", saved = disk + "/saved";
  fs::create_directory(disk);
  if (!mount_small_disk(disk, "512k")) GTEST_SKIP() << "no mounts are allowed here: " << std::strerror(errno);
  const Series series(saved);
  constexpr int64_t kLarge = 1500;  // 72 KB a checkpoint
  const ProgramResult first = series.run(1, 0, std::nullopt, kLarge);
  EXPECT_EQ(first.exit_code, 0) << first.errors;
  // The disk fills up sooner or later in the save of step 2, which takes as much as the one of step 1.
  const int64_t needed = checkpoint::list(saved).front().bytes;
  for (const int64_t percent : {0, 5, 30, 60, 90, 97}) {
    SCOPED_TRACE(std::to_string(percent) + " % of what it needs are free");
    std::ofstream filler(disk + "/filler", std::ios::binary | std::ios::trunc);
    const auto space = static_cast<int64_t>(fs::space(disk).available);
    filler << std::string(static_cast<size_t>(std::max<int64_t>(space - needed * percent / 100, 0)), 'x');
    filler.close();
    const ProgramResult full = series.run(1, 0, std::nullopt, kLarge);
    EXPECT_EQ(full.exit_code, 1) << full.output;
    EXPECT_NE(full.errors.find("No space left"), std::string::npos) << full.errors;
    EXPECT_EQ(full.errors.find("error: "), full.errors.rfind("error: ")) << full.errors;
    const ProgramResult loads = series.run(0, 0, std::nullopt, kLarge);
    EXPECT_EQ(loads.exit_code, 0) << loads.errors;
    EXPECT_EQ(checkpoint::list(saved).size(), 1u);
    for (const auto& entry : fs::directory_iterator(saved)) EXPECT_EQ(entry.path().filename(), "step-000001");
  }
  fs::remove(disk + "/filler");
  const ProgramResult last = series.run(1, 0, std::nullopt, kLarge);
  EXPECT_EQ(last.exit_code, 0) << last.errors;
  ::umount(disk.c_str());
}

// Rank 2 (node 1) has another disk mounted over the folder.
TEST_F(CheckpointKills, ANodeThatSeesAnotherFolderIsNamedAtTheStart) {
  if (::system("unshare -m true 2> /dev/null") != 0) GTEST_SKIP() << "no mounts are allowed here";
  const std::string saved = folder_ + "/saved";
  fs::create_directory(saved);
  std::ofstream text(folder_ + "/text.txt");
  for (int i = 0; i < 2000; ++i) text << "line " << i << " of a text";
  text.close();
  const std::string data = folder_ + "/text.h5";
  ASSERT_EQ(run_program({"dtorch_app", "prepare", "--text", folder_ + "/text.txt", "--out", data}).exit_code, 0);
  ProgramOptions options{.np = kRanks};
  options.wrapper = {"sh", "-c",
                     "test \"$OMPI_COMM_WORLD_RANK\" != 2 || exec unshare -m sh -c 'mount -t tmpfs none \"" + saved +
                         "\" && exec \"$@\"' sh \"$@\"; exec \"$@\"",
                     "sh"};
  const std::vector<std::string> trains = {
      "dtorch_app",       "train", "--data",   data, "--dim",    "16", "--heads", "2", "--steps",     "2",
      "--checkpoint-dir", saved,   "--layers", "1",  "--length", "16", "--batch", "2", "--log-every", "1"};
  for (const auto& command : {trains, {"checkpoint_saver", saved, "1", "6", "0"}}) {
    const ProgramResult result = run_program(command, options);
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_NE(result.errors.find("node 1"), std::string::npos) << result.errors;
    EXPECT_NE(result.errors.find("doesn't see what rank 0 wrote in '" + saved), std::string::npos) << result.errors;
    EXPECT_EQ(result.errors.find("error: "), result.errors.rfind("error: ")) << result.errors;
    EXPECT_EQ(result.output.find("loss"), std::string::npos) << "it has begun to train: " << result.output;
    EXPECT_TRUE(fs::is_empty(saved));
  }
}

}  // namespace
}  // namespace dtorch::test
