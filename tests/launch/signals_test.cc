// What asks a job to stop, before and while there is one.
#include "runtime/launch/signals.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "runtime/comm/in_process.h"

namespace dtorch {
namespace {

// A controller that was never started: it only knows whether it was asked to stop.
struct Job {
  InProcessFabric fabric{1};
  RuntimeOptions options;
  MainController controller{fabric.control(kController), 1, options};
};

TEST(Signals, AStopSignalThatComesBeforeTheJobIsKeptForIt) {
  Job job;
  keep_early_stop_signal();
  ASSERT_EQ(::raise(SIGUSR1), 0);
  EXPECT_FALSE(job.controller.stop_requested());
  const JobSignals signals(job.controller);
  EXPECT_TRUE(job.controller.stop_requested());
}

TEST(Signals, AnEarlyStopSignalIsForOneJobOnly) {
  keep_early_stop_signal();
  ASSERT_EQ(::raise(SIGUSR1), 0);
  {
    Job first;
    const JobSignals signals(first.controller);
    EXPECT_TRUE(first.controller.stop_requested());
  }
  Job second;
  const JobSignals signals(second.controller);
  EXPECT_FALSE(second.controller.stop_requested());
}

TEST(Signals, TheTimeAsksAJobToStop) {
  Job job;
  const JobSignals signals(job.controller, 0.01);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!job.controller.stop_requested() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(job.controller.stop_requested());
}

}  // namespace
}  // namespace dtorch
