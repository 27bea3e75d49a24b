// A training with kernels, sharded optimizer state and checkpoints that loses nodes: losses are those of the
// undisturbed run, to the last bit, and every checkpoint is complete.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "dtorch/nn.h"
#include "io/checkpoint.h"
#include "tests/launch/recovery_job.h"

namespace dtorch {
namespace {

using test::Fault;
using test::RecoveryJob;

constexpr int kSteps = 8;
constexpr int64_t kBatch = 4, kLength = 8, kVocab = 32;

RuntimeOptions options_for(int32_t spares = 0) {
  RuntimeOptions options;
  options.devices = 4;
  options.spares = spares;
  options.recover = true;
  options.snapshot_every = 2;
  return options;
}

struct Outcome {
  std::vector<float> losses;
  std::string failure;
  RecoveryStats stats;
  int64_t num_messages = 0;
};

// Two-dimensional parallelism with the optimizer's state sharded; saves in the middle and at the end.
Outcome train(int32_t nodes, const RuntimeOptions& options, const std::vector<Fault>& faults,
              const std::filesystem::path& directory) {
  Outcome outcome;
  std::filesystem::remove_all(directory);
  RecoveryJob job(nodes, options, faults);
  job.run([&](Client& client) {
    client.manual_seed(3);
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const nn::Llama model({.dim = 16, .layers = 2, .heads = 2, .vocab = kVocab, .ffn = 32},
                          {.mesh = mesh, .tp = "tp", .zero = "dp"});
    optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
    const auto batch = [&](int64_t step, int64_t shift) {
      std::vector<int64_t> tokens;
      for (int64_t b = 0; b < kBatch; ++b) {
        for (int64_t t = shift; t < kLength + shift; ++t) tokens.push_back((b * 7 + t * 5 + step * 3) % kVocab);
      }
      return from_host(HostTensor::of<int64_t>({kBatch, kLength}, tokens),
                       {.mesh = mesh, .placements = {Shard(0), Replicate()}});
    };
    for (int step = 0; step < kSteps; ++step) {
      const Tensor loss = model.loss(batch(step, 0), batch(step, 1));
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      outcome.losses.push_back(loss.item<float>());
      // Stops early when it is good enough: control flow on what was read.
      if (outcome.losses.back() < 0.1f) break;
      if (step % 3 == 2) checkpoint::save_async(directory, {.model = model, .optimizer = optimizer, .step = step + 1});
    }
    checkpoint::wait();
  });
  EXPECT_TRUE(job.ended_in_order());
  outcome.failure = job.failure();
  outcome.stats = job.stats();
  outcome.num_messages = job.num_messages();
  return outcome;
}

class RecoveryTraining : public testing::Test {
 protected:
  std::filesystem::path directory(const char* name) const {
    return std::filesystem::temp_directory_path() / ("dtorch_recovery_" + std::to_string(getpid()) + "_" + name);
  }
  void TearDown() override {
    std::filesystem::remove_all(directory("undisturbed"));
    std::filesystem::remove_all(directory("disturbed"));
  }
  // Both directories have the same checkpoints, whole.
  void expect_same_checkpoints() const {
    const std::vector<checkpoint::Listed> expected = checkpoint::list(directory("undisturbed"));
    const std::vector<checkpoint::Listed> found = checkpoint::list(directory("disturbed"));
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].problem, "");
      EXPECT_EQ(found[i].step, expected[i].step);
      EXPECT_EQ(found[i].num_files, expected[i].num_files);
      EXPECT_TRUE(checkpoint::differences(found[i].path, expected[i].path).empty());
    }
  }
};

TEST_F(RecoveryTraining, LossesAndCheckpointsAreThoseOfTheUndisturbedRun) {
  const Outcome undisturbed = train(3, options_for(), {}, directory("undisturbed"));
  ASSERT_EQ(undisturbed.failure, "");
  ASSERT_EQ(undisturbed.losses.size(), static_cast<size_t>(kSteps));
  const int64_t stride = std::max<int64_t>(1, undisturbed.num_messages / 7);
  for (int64_t after = 2; after <= undisturbed.num_messages; after += stride) {
    SCOPED_TRACE("after message " + std::to_string(after) + " of " + std::to_string(undisturbed.num_messages));
    const Outcome outcome =
        train(3, options_for(), {{after, static_cast<int32_t>(after / stride % 3)}}, directory("disturbed"));
    ASSERT_EQ(outcome.failure, "");
    ASSERT_EQ(outcome.losses, undisturbed.losses);
    // The job may end before the log is sent, and at the end before the loss: what is said of snapshots isn't as often
    // in every run.
    if (after <= undisturbed.num_messages * 3 / 4) {
      EXPECT_EQ(outcome.stats.epoch, 2u);
    }
    expect_same_checkpoints();
  }
}

TEST_F(RecoveryTraining, TwoLossesWithSpares) {
  const Outcome undisturbed = train(3, options_for(), {}, directory("undisturbed"));
  for (int64_t gap : {0, 4}) {
    SCOPED_TRACE("messages between: " + std::to_string(gap));
    const int64_t after = undisturbed.num_messages / 2;
    const Outcome outcome = train(5, options_for(2), {{after, 0}, {after + gap, 2}}, directory("disturbed"));
    ASSERT_EQ(outcome.failure, "");
    ASSERT_EQ(outcome.losses, undisturbed.losses);
    expect_same_checkpoints();
  }
}

}  // namespace
}  // namespace dtorch
