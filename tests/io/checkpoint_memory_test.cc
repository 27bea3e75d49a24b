// How much memory saving and loading take beyond the values themselves: one block, by the devices' counters and by the
// process's own peak.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "dtorch/io.h"
#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMiB = 1 << 20, kBlock = 64 * kMiB;
constexpr int64_t kSlack = 24 * kMiB;  // HDF5's and the allocator's own
constexpr int64_t kRows = 24 << 10, kColumns = 1024, kBytes = kRows * kColumns * 4;
static_assert(kBytes > kBlock + kSlack, "holding a value twice must show");

// A number of /proc/self/status in bytes.
int64_t status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return -1;
}

// AddressSanitizer keeps freed memory aside, so that the process's own figure says nothing.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kProcessTells = false;
#else
constexpr bool kProcessTells = true;
#endif

// By how much the process grew at most while `f` ran.
template <class F>
int64_t growth(F&& f) {
  ::malloc_trim(0);  // freed memory stays with the process (runtime/base/freed_memory.h) and wouldn't count
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak counts from now on
  const int64_t before = status("VmRSS");
  f();
  return status("VmHWM") - before;
}

class CheckpointMemory : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    folder_ = fs::temp_directory_path() / ("dtorch_checkpoint_memory_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    manual_seed(1);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    KernelTest::TearDown();
  }
  static std::vector<int64_t> in_use() {
    client().synchronize();
    return client().stats().bytes_in_use_per_device;
  }
  // What the devices' peaks rose above what they held.
  template <class F>
  static int64_t device_growth(F&& f) {
    client().reset_peak_bytes();
    const std::vector<int64_t> before = in_use();
    f();
    client().synchronize();
    const std::vector<int64_t> peak = client().stats().peak_bytes_per_device;
    int64_t most = 0;
    for (size_t d = 0; d < before.size(); ++d) most = std::max(most, peak[d] - before[d]);
    return most;
  }
  fs::path folder_;
};

struct Matrix : nn::Module {
  explicit Matrix(const Tensor& value) { w = register_parameter("w", value); }
  nn::Parameter w;
};

TEST_F(CheckpointMemory, ASaveTakesOneBlockAndALoadHoldsNothingTwice) {
  const TensorOptions on_one{.mesh = cpu_mesh({1})};
  const Tensor packed = rand({kRows, kColumns}, on_one), turned = rand({kColumns, kRows}, on_one).transpose(0, 1);
  checkpoint::save(folder_, {.model = Matrix(rand({2, 2}, on_one)), .step = 0});  // what libraries take once
  for (const auto& [value, step] : {std::pair(packed, 1), std::pair(turned, 2)}) {
    SCOPED_TRACE(step == 1 ? "packed" : "transposed, so that blocks are packed");
    const Matrix model(value);
    int64_t of_process = 0;
    const int64_t of_devices =
        device_growth([&] { of_process = growth([&] { checkpoint::save(folder_, {.model = model, .step = step}); }); });
    EXPECT_LE(of_devices, 4096);
    if (!kProcessTells) continue;
    EXPECT_LE(of_process, kBlock + kSlack);
    if (step == 2) {
      EXPECT_GE(of_process, kBlock / 2) << "the peak misses some";
    }
    RecordProperty("save_" + std::to_string(step), std::to_string(of_process));
  }
  Matrix loaded(zeros({kRows, kColumns}, on_one));
  checkpoint::Contents contents{.model = loaded};
  for (int64_t step : {1, 2}) {
    SCOPED_TRACE(step);
    int64_t of_process = 0;
    const int64_t of_devices = device_growth([&] {
      of_process = growth([&] { checkpoint::load(folder_ / ("step-00000" + std::to_string(step)), contents); });
    });
    EXPECT_LE(of_devices, 4096);
    // The process's own figure is kept for whoever looks, not judged: docs/roadmap.md.
    RecordProperty("load_" + std::to_string(step), std::to_string(of_process));
    EXPECT_EQ(check_tensor(loaded.w.value(), (step == 1 ? packed : turned).to_host(), 0), "");
  }
}

TEST_F(CheckpointMemory, AnOptimizersOldStateIsGoneBeforeTheNewIsRead) {
  Matrix model(rand({kRows, kColumns}, {.mesh = cpu_mesh({4}), .placements = {Shard(0)}}));
  optim::SGD optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9});
  sum(model.w).backward();
  optimizer.step();
  optimizer.zero_grad();
  checkpoint::save(folder_, {.model = model, .optimizer = optimizer, .step = 1});
  const HostTensor momentum = optimizer.state().front().at("momentum").to_host();
  checkpoint::Contents contents{.model = model, .optimizer = optimizer};
  EXPECT_LE(device_growth([&] { checkpoint::load(folder_, contents); }), 4096);
  EXPECT_EQ(check_tensor(optimizer.state().front().at("momentum"), momentum, 0), "");
}

// It holds the values of its call, as one copy of what changes until they are written.
TEST_F(CheckpointMemory, AnAsynchronousSaveTakesWhatChangesBeforeItIsWritten) {
  Matrix model(rand({kRows, kColumns}, {.mesh = cpu_mesh({4}), .placements = {Shard(0)}}));
  const int64_t more = device_growth([&] {
    checkpoint::save_async(folder_, {.model = model, .step = 1});
    for (int step = 0; step < 3; ++step) {
      model.w.set_value(model.w.value().detach() + 1);
      client().synchronize();
    }
    checkpoint::wait();
  });
  EXPECT_LE(more, 2 * kBytes / 4 + 4096) << "the saved value and, for a moment, the one before the newest";
}

}  // namespace
}  // namespace dtorch::test
