// Jobs that lose nodes and go on: the program reads what it would have read anyway, to the last bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtorch/nn.h"
#include "tests/launch/recovery_job.h"

namespace dtorch {
namespace {

using test::Fault;
using test::RecoveryJob;

RuntimeOptions options_for(int64_t devices, int32_t spares = 0) {
  RuntimeOptions options;
  options.devices = devices;
  options.spares = spares;
  options.recover = true;
  options.snapshot_every = 3;
  return options;
}

using Values = std::vector<std::vector<float>>;

// A loop with state of several layouts, host data in every turn, an optimizer step (snapshots are counted in these) and
// a way of its own that depends on what it reads. Also in builds without LibTorch.
void train(Client&, int steps, Values& values) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  const TensorOptions rows{.mesh = mesh, .placements = {Shard(0)}};
  const TensorOptions same{.mesh = mesh, .placements = {Replicate()}};
  Tensor sharded = full({6, 2}, 0.5, rows);  // uneven: the last device has none
  Tensor replicated = full({3}, 1.25, same);
  const nn::Parameter parameter(full({4, 4}, 1.0, rows));
  optim::SGD optimizer({parameter}, {.lr = 0.5});
  for (int step = 0; step < steps; ++step) {
    std::vector<float> numbers(12);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>((7 * i + 3 * size_t(step)) % 11) / 8;
    const Tensor batch = from_host(HostTensor::of<float>({6, 2}, numbers), rows);
    sharded = sharded * 0.75 + batch;
    const Tensor gathered = sharded.redistribute({Replicate()});
    sharded = (gathered - batch.redistribute({Replicate()}) * 0.5).redistribute({Shard(0)});
    replicated = replicated * 0.5 + 0.125;
    optimizer.step();
    values.push_back(sharded.to_host().to_vector<float>());
    if (values.back()[0] > 0.8f) {
      sharded = sharded - 0.25;
      values.push_back(replicated.to_host().to_vector<float>());
    }
  }
  values.push_back(sharded.to_host().to_vector<float>());
  values.push_back(replicated.to_host().to_vector<float>());
}

struct Outcome {
  Values values;
  std::string failure;
  RecoveryStats stats;
  int64_t num_messages = 0;
};

Outcome outcome_of(int32_t nodes, const RuntimeOptions& options, std::vector<Fault> faults = {}, int steps = 12) {
  Outcome outcome;
  RecoveryJob job(nodes, options, std::move(faults));
  job.run([&](Client& client) { train(client, steps, outcome.values); });
  EXPECT_TRUE(job.ended_in_order());
  outcome.failure = job.failure();
  outcome.stats = job.stats();
  outcome.num_messages = job.num_messages();
  return outcome;
}

TEST(Recovery, WithoutALossOnlySnapshotsAreMade) {
  RuntimeOptions off = options_for(4);
  off.recover = false;
  const Outcome plain = outcome_of(3, off);
  const Outcome kept = outcome_of(3, options_for(4));
  EXPECT_EQ(plain.failure, "");
  EXPECT_EQ(kept.failure, "");
  EXPECT_EQ(kept.values, plain.values);
  EXPECT_GE(kept.stats.snapshots, 2);
  EXPECT_GT(kept.stats.snapshot_bytes, 0);
  EXPECT_GT(kept.stats.copy_bytes, 0);
  EXPECT_EQ(kept.stats.recoveries, 0);
  EXPECT_EQ(plain.stats.snapshots, 0);
}

TEST(Recovery, ALossAnywhereIsOnlyAPause) {
  const Outcome undisturbed = outcome_of(3, options_for(4));
  ASSERT_EQ(undisturbed.failure, "");
  for (int64_t after = 1; after <= undisturbed.num_messages; ++after) {
    SCOPED_TRACE("after message " + std::to_string(after));
    const Outcome outcome = outcome_of(3, options_for(4), {{after, static_cast<int32_t>(after % 3)}});
    ASSERT_EQ(outcome.failure, "");
    ASSERT_EQ(outcome.values, undisturbed.values);
  }
}

TEST(Recovery, ASpareTakesTheDevices) {
  const Outcome undisturbed = outcome_of(3, options_for(4));
  for (int64_t after : {2, 9, 17, 25, 33}) {
    SCOPED_TRACE("after message " + std::to_string(after));
    const Outcome outcome = outcome_of(4, options_for(4, 1), {{after, static_cast<int32_t>(after % 3)}});
    ASSERT_EQ(outcome.failure, "");
    ASSERT_EQ(outcome.values, undisturbed.values);
    EXPECT_EQ(outcome.stats.epoch, 2u);
  }
}

TEST(Recovery, TwoAtOnceWithTwoSpares) {
  const Outcome undisturbed = outcome_of(3, options_for(4));
  for (int64_t after : {1, 8, 16, 24, 32}) {
    SCOPED_TRACE("after message " + std::to_string(after));
    const Outcome outcome = outcome_of(5, options_for(4, 2), {{after, 1}, {after, 2}});
    ASSERT_EQ(outcome.failure, "");
    ASSERT_EQ(outcome.values, undisturbed.values);
  }
}

TEST(Recovery, ASecondLossWhileRecovering) {
  const Outcome undisturbed = outcome_of(3, options_for(4));
  for (int64_t gap = 1; gap <= 12; ++gap) {
    SCOPED_TRACE("messages between: " + std::to_string(gap));
    const Outcome outcome = outcome_of(5, options_for(4, 2), {{20, 1}, {20 + gap, 2}});
    ASSERT_EQ(outcome.failure, "");
    ASSERT_EQ(outcome.values, undisturbed.values);
  }
}

TEST(Recovery, NodesThatPassMessagesOnMayBeLost) {
  RuntimeOptions options = options_for(7);
  options.fan_out = 2;
  const Outcome undisturbed = outcome_of(7, options);
  ASSERT_EQ(undisturbed.failure, "");
  for (const std::vector<Fault>& faults :
       {std::vector<Fault>{{18, 0}}, {{25, 1}}, {{12, 0}, {14, 3}}, {{20, 4}, {26, 0}}}) {
    SCOPED_TRACE("node " + std::to_string(faults.front().node));
    const Outcome outcome = outcome_of(7, options, faults);
    ASSERT_EQ(outcome.failure, "");
    ASSERT_EQ(outcome.values, undisturbed.values);
  }
}

// A value that doesn't exist, because its operator failed before the snapshot, doesn't exist afterwards either.
TEST(Recovery, AFailureStaysWhatItWas) {
  for (int32_t lost : {1, 2}) {
    RecoveryJob job(3, options_for(3), {{30, lost}});
    std::string before, after;
    Values values;
    job.run([&](Client& client) {
      const DeviceMesh one("cpu", {1}, {lost});
      const Tensor huge = full({int64_t{1} << 56}, 1.0, {.mesh = one, .placements = {Replicate()}});
      const auto failure = [&] {
        try {
          (void)(huge + huge).to_host_local(lost);
          return std::string("none");
        } catch (const RuntimeFault& fault) {
          return std::string(fault.what());
        }
      };
      before = failure();
      const TensorOptions rows{.mesh = init_device_mesh("cpu", {3}), .placements = {Shard(0)}};
      const nn::Parameter parameter(full({3}, 1.0, rows));
      optim::SGD optimizer({parameter}, {.lr = 0.5});
      Tensor x = full({6}, 1.0, rows);
      for (int step = 0; step < 20; ++step) {
        x = x + 1.0;
        optimizer.step();
        values.push_back(x.to_host().to_vector<float>());
      }
      after = failure();
      client.synchronize();
    });
    EXPECT_EQ(job.failure(), "");
    EXPECT_EQ(job.stats().epoch, 2u);
    EXPECT_GE(job.stats().snapshots, 1);
    EXPECT_NE(before.find("[full] failed on node " + std::to_string(lost)), std::string::npos) << before;
    EXPECT_EQ(after, before);
    EXPECT_EQ(values.back(), std::vector<float>(6, 21));
  }
}

TEST(Recovery, WithoutRecoveryALossEndsTheJob) {
  RuntimeOptions options = options_for(4);
  options.recover = false;
  const Outcome outcome = outcome_of(3, options, {{10, 1}});
  EXPECT_EQ(outcome.failure, "node 1 is lost: killed by the test");
}

TEST(Recovery, WhatHasNoCopyLeftIsNamed) {
  // Both holders of the sharded state at once.
  const Outcome outcome = outcome_of(3, options_for(4), {{30, 1}, {30, 2}});
  EXPECT_NE(outcome.failure.find("node 1 is lost (killed by the test), node 2 is lost"), std::string::npos)
      << outcome.failure;
  EXPECT_NE(outcome.failure.find("have no copy left (float32 "), std::string::npos) << outcome.failure;
}

}  // namespace
}  // namespace dtorch
