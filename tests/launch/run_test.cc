// dtorch::run with nodes as threads of this process: the whole pipeline on creation, add, redistribute and reads; how
// jobs end.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dtorch/dtorch.h"
#include "dtorch/io.h"
#include "dtorch/nn.h"

namespace dtorch {
namespace {

// A command line that run() may take options out of.
struct CommandLine {
  explicit CommandLine(std::vector<std::string> arguments) : words(std::move(arguments)) {
    words.insert(words.begin(), "program");
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
  }
  int argc() const { return static_cast<int>(words.size()); }
  char** argv() { return pointers.data(); }
  std::vector<std::string> words;
  std::vector<char*> pointers;
};

struct Ended {
  int exit_code = 0;
  std::string errors;
  double seconds = 0;
};

Ended run_here(std::vector<std::string> arguments, const std::function<void(Client&)>& program) {
  CommandLine line(std::move(arguments));
  testing::internal::CaptureStderr();
  const auto start = std::chrono::steady_clock::now();
  Ended ended;
  ended.exit_code = run(line.argc(), line.argv(), program);
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ended.errors = testing::internal::GetCapturedStderr();
  return ended;
}

size_t count(const std::string& text, const std::string& word) {
  size_t times = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++times;
  return times;
}

class Pipeline : public testing::TestWithParam<const char*> {};

TEST_P(Pipeline, CreatesAddsRedistributesAndReads) {
  const Ended ended = run_here({"--devices", "4", "--nodes", GetParam()}, [](Client& client) {
    EXPECT_EQ(client.devices(), 4);
    const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"dp"});
    const Tensor x =
        from_host(HostTensor::of<float>({6}, {1, 2, 3, 4, 5, 6}), {.mesh = mesh, .placements = {Shard(0)}});
    const Tensor y = full({6}, 10.0, {.mesh = mesh, .placements = {Shard(0)}});
    const Tensor z = x + y;
    const std::vector<float> expected = {11, 12, 13, 14, 15, 16};
    EXPECT_EQ(z.to_host().to_vector<float>(), expected);
    const Tensor whole = z.redistribute({Replicate()});
    for (int64_t device = 0; device < 4; ++device) EXPECT_EQ(whole.to_host_local(device).to_vector<float>(), expected);
    // Each of 4 holders of a Partial(sum) has its part; the fold gives the value.
    const Tensor partial = whole.redistribute({Partial()});
    EXPECT_EQ(partial.to_host().to_vector<float>(), expected);
    EXPECT_EQ(partial.redistribute({Shard(0)}).to_host().to_vector<float>(), expected);
    EXPECT_GE(client.stats().reads, 7);
  });
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_EQ(ended.errors, "");
}

TEST_P(Pipeline, LongChainsOfSeveralGraphsGiveTheirValues) {
  const Ended ended =
      run_here({"--devices", "3", "--nodes", GetParam(), "--inflight-operators", "700"}, [](Client& client) {
        const auto chain = [&](Graph graph, float start) {
          GraphScope scope(graph);
          const DeviceMesh mesh = init_device_mesh("cpu", {3});
          const Tensor one = full({5}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
          Tensor y = full({5}, start, {.mesh = mesh, .placements = {Shard(0)}});
          for (int i = 0; i < 3000; ++i) {
            y = y + one;
            if (i % 500 == 0) y = y.redistribute({Replicate()}).redistribute({Shard(0)});
          }
          EXPECT_EQ(y.to_host().to_vector<float>(), std::vector<float>(5, start + 3000));
        };
        const Graph other = client.new_graph();
        std::thread second([&] { chain(other, 7); });
        chain(client.graph(), 0);
        second.join();
      });
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
}

INSTANTIATE_TEST_SUITE_P(Nodes, Pipeline, testing::Values("1", "3"),
                         [](const auto& info) { return "Nodes" + std::string(info.param); });

TEST(Run, ProgramGetsTheArgumentsThatAreLeftAndItsCodeIsTheJobs) {
  CommandLine line({"--devices", "2", "--own", "3", "--log-level=warn", "file"});
  std::vector<std::string> seen;
  const int code = run(line.argc(), line.argv(), [&](Client&, int argc, char** argv) {
    seen.assign(argv + 1, argv + argc);
    return 5;
  });
  EXPECT_EQ(code, 5);
  EXPECT_EQ(seen, (std::vector<std::string>{"--own", "3", "file"}));
}

TEST(Run, ExceptionOfTheProgramIsPrintedOnceAndEndsTheJobWithOne) {
  const Ended ended = run_here({"--nodes", "2"}, [](Client&) { throw std::runtime_error("no such recipe"); });
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.errors, "error: no such recipe\n");
}

TEST(Run, ExceptionOfAnyTypeEndsTheJobWithOne) {
  const Ended ended = run_here({}, [](Client&) { throw 42; });
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.errors, "error: an exception that isn't a std::exception\n");
}

TEST(Run, WorkThatNobodyWillReadDoesntDelayTheEndAfterAnException) {
  const Ended ended = run_here({"--nodes", "2"}, [](Client&) {
    Tensor y = full({1 << 20}, 0.0);
    const Tensor one = full({1 << 20}, 1.0);
    for (int i = 0; i < 5000; ++i) y = y + one;
    throw std::runtime_error("changed my mind");
  });
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.errors, "error: changed my mind\n");
  EXPECT_LT(ended.seconds, 10);
}

TEST(Run, WrongOptionIsOneSentence) {
  const Ended ended = run_here({"--devices", "many"}, [](Client&) { FAIL() << "the program ran"; });
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.errors, "error: --devices is 'many'; it must be an integer from 1 to 65536\n");
}

TEST(Run, DevicesThatThisBuildDoesntHaveAreRefused) {
  const Ended ended = run_here({"--device", "cuda"}, [](Client&) { FAIL() << "the program ran"; });
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(count(ended.errors, "error: "), 1u);
}

TEST(Run, AMeshOfKindCudaIsThatOfAJobWhoseDevicesPlayGpus) {
  for (const char* device : {"fake", "null"}) {
    const Ended ended = run_here({"--device", device, "--devices", "2"}, [](Client&) {
      const DeviceMesh mesh = init_device_mesh("cuda", {2});
      const Tensor two = full({4}, 1.0, {.mesh = mesh, .placements = {Shard(0)}}) * 2;
      EXPECT_EQ(two.mesh().kind(), "cuda");
      static_cast<void>(two.to_host());
    });
    EXPECT_EQ(ended.exit_code, 0) << device << ": " << ended.errors;
  }
  const Ended ended = run_here({"--devices", "2"}, [](Client&) { init_device_mesh("cuda", {2}); });
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(count(ended.errors, "a mesh of kind \"cuda\" needs GPUs, and this job's devices are CPUs"), 1u)
      << ended.errors;
}

TEST(Run, AsManyDevicesAsAcceleratorsWhenNobodySays) {
  const auto devices_of = [](std::vector<std::string> arguments) {
    int64_t devices = 0;
    const Ended ended = run_here(std::move(arguments), [&](Client& client) { devices = client.devices(); });
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    return devices;
  };
  EXPECT_EQ(devices_of({"--device", "fake:3"}), 3);
  EXPECT_EQ(devices_of({"--device", "fake:3", "--nodes", "2"}), 6);
  EXPECT_EQ(devices_of({"--device", "fake:3", "--devices", "1"}), 1);
  EXPECT_EQ(devices_of({"--device", "cpu", "--nodes", "2"}), 2);
}

TEST(Run, HelpListsTheOptionsAndRunsNothing) {
  CommandLine line({"--help"});
  testing::internal::CaptureStdout();
  const int code = run(line.argc(), line.argv(), [](Client&) { FAIL() << "the program ran"; });
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0);
  EXPECT_NE(output.find("--inflight-operators"), std::string::npos);
}

TEST(Run, ProgramThatAsksIsToldToStop) {
  const Ended ended = run_here({}, [](Client& client) {
    EXPECT_FALSE(client.stop_requested());
    EXPECT_EQ(::raise(SIGUSR1), 0);
    EXPECT_TRUE(client.stop_requested());
  });
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
}

TEST(Run, ProgramThatDoesntAskIsStoppedAtItsNextRead) {
  const Ended ended = run_here({"--nodes", "2"}, [](Client&) {
    EXPECT_EQ(::raise(SIGTERM), 0);
    const Tensor one = full({4}, 1.0);
    for (;;) static_cast<void>((one + one).to_host());
  });
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.errors, "error: stopped by SIGTERM\n");
  EXPECT_LT(ended.seconds, 10);
}

TEST(RunDeathTest, ACheckpointThatDoesNotGetOnIsNotWaitedForAfterASignal) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto program = [](Client& client) {
    testing::internal::GetCapturedStderr();
    struct Model : nn::Module {
      Model() { register_parameter("w", full({4}, 1.0)); }
    };
    const auto blocked = []() -> std::string {
      std::this_thread::sleep_for(std::chrono::seconds(60));
      return "";
    };
    checkpoint::save_async(testing::TempDir() + "/stuck", {.model = Model(), .step = 1, .late_config = blocked});
    ::raise(SIGTERM);
    EXPECT_TRUE(client.stop_requested());  // as it should; and then it waits
    checkpoint::wait();
  };
  EXPECT_EXIT(run_here({"--deadline", "1"}, program), testing::ExitedWithCode(1), "error: stopped by SIGTERM");
}

TEST(RunDeathTest, ProgramThatIsBusyWithSomethingElseIsEndedByForce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(run_here({},
                       [](Client&) {
                         testing::internal::GetCapturedStderr();
                         ::raise(SIGTERM);
                         std::this_thread::sleep_for(std::chrono::seconds(60));
                       }),
              testing::ExitedWithCode(1), "error: stopped by SIGTERM");
}

}  // namespace
}  // namespace dtorch
