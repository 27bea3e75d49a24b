// A training program on fake accelerators gives the CPU's values, whichever way data moves; and mistakes that are
// planted in the devices, those that a missing event, handle or order would be, are found.
#include <cmath>
#include <cstdlib>

#include "runtime/accelerator/fake/fake_faults.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using fake::Faults;

void set(const char* name, const std::string& value) {
  if (setenv(name, value.c_str(), 1) != 0) throw InternalError(std::string(name) + " can't be set");
}

// Sharded and replicated weights, moves of all kinds, takeovers of memory, host data, reads in between.
std::vector<HostTensor> train() {
  const DeviceMesh mesh = cpu_mesh({2, 2}, {"dp", "tp"});
  Tensor w1 = distribute(normal({6, 10}, kFloat32, 1), mesh, {Replicate(), Shard(1)});
  Tensor w2 = distribute(normal({10, 5}, kFloat32, 2), mesh, {Replicate(), Shard(0)});
  std::vector<HostTensor> seen;
  for (uint64_t step = 0; step < 4; ++step) {
    w1 = w1.detach().requires_grad_();
    w2 = w2.detach().requires_grad_();
    const Tensor x = distribute(normal({7, 6}, kFloat32, 10 + step), mesh, {Shard(0), Replicate()});
    const Tensor hidden = relu(matmul(x, w1)) * 0.5 + 0.25;
    const Tensor y = matmul(hidden, w2).redistribute({Shard(0), Replicate()});
    const Tensor shifted = y.redistribute({Replicate(), Shard(1)}).redistribute({Shard(1), Shard(0)});
    const Tensor loss = sum(square(shifted)) * 0.01;
    loss.backward();
    w1 = w1.detach() - w1.grad().redistribute(w1.placements()) * 0.05;
    w2 = w2.detach() - w2.grad().redistribute(w2.placements()) * 0.05;
    seen.push_back(loss.to_host());
  }
  seen.push_back(w1.to_host());
  seen.push_back(w2.to_host());
  return seen;
}

struct Outcome {
  std::vector<HostTensor> values;
  std::string error;
};

Outcome run_on(const std::string& device, int nodes, const std::function<std::vector<HostTensor>()>& program = train) {
  set("DTORCH_DEVICE", device);
  Outcome outcome;
  run_in_job(nodes, 4, [&](Client&) {
    try {
      outcome.values = program();
    } catch (const std::exception& error) {
      outcome.error = error.what();
    }
    return 0;
  });
  return outcome;
}

// "" when both are the same, up to rounding.
std::string difference(const Outcome& got, const Outcome& want) {
  if (!got.error.empty()) return got.error;
  if (got.values.size() != want.values.size()) return std::to_string(got.values.size()) + " values";
  for (size_t i = 0; i < got.values.size(); ++i) {
    const std::string what = checker::difference(got.values[i], want.values[i], 1e-5);
    if (!what.empty()) return "value " + std::to_string(i) + ": " + what;
  }
  return "";
}

class FakeJob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_kernels()) GTEST_SKIP() << "this build has no kernels";
  }
  void TearDown() override {
    fake::plant({});
    set("DTORCH_DEVICE", "cpu");
    set("DTORCH_COMPUTE_STREAMS", "1");
    set("DTORCH_DEADLINE", "300");
  }
  const Outcome& on_cpu() {
    static const Outcome outcome = run_on("cpu", 2);
    return outcome;
  }
  // In one of some jobs: a fault shows only where work runs in an order that the missing wait would have forbidden.
  bool is_found(const Faults& faults, const std::string& device, int nodes) {
    constexpr int kJobs = 100;
    for (int seed = 1; seed <= kJobs; ++seed) {
      fake::plant(faults);
      const Outcome outcome = run_on(device + ":" + std::to_string(seed), nodes);
      fake::plant({});
      if (!difference(outcome, on_cpu()).empty()) return true;
    }
    return false;
  }
  static Faults without_wait(StreamKind waits, StreamKind for_kind) {
    Faults faults;
    faults.missing_wait = std::pair(waits, for_kind);
    return faults;
  }
};

TEST_F(FakeJob, CollectivesGiveTheValuesOfTheCpu) {
  for (int seed = 1; seed <= 4; ++seed)
    EXPECT_EQ(difference(run_on("fake:0:" + std::to_string(seed), 2), on_cpu()), "");
}

TEST_F(FakeJob, DevicesOfOneAcceleratorGiveTheValuesOfTheCpu) {
  for (int seed = 1; seed <= 4; ++seed)
    EXPECT_EQ(difference(run_on("fake:1:" + std::to_string(seed), 1), on_cpu()), "");
}

TEST_F(FakeJob, WhatGoesThroughTheHostGivesTheValuesOfTheCpu) {
  for (int seed = 1; seed <= 4; ++seed)
    EXPECT_EQ(difference(run_on("fake:1:" + std::to_string(seed), 2), on_cpu()), "");
}

TEST_F(FakeJob, SeveralComputeStreamsGiveTheValuesOfTheCpu) {
  on_cpu();
  set("DTORCH_COMPUTE_STREAMS", "3");
  for (const char* device : {"fake:0:1", "fake:1:2", "fake:0:3"})
    EXPECT_EQ(difference(run_on(device, 2), on_cpu()), "") << device;
}

TEST_F(FakeJob, AFailureThatShowsLaterIsTheOperatorsAndTheJobGoesOn) {
  const Outcome outcome = run_on("fake", 2, [] {
    const DeviceMesh mesh = cpu_mesh({4});
    const Tensor ids = distribute(HostTensor::of<int64_t>({4}, {0, 1, 2, 6}), mesh, {Shard(0)});
    const Tensor table = distribute(iota({6, 2}), mesh, {Replicate()});
    const Tensor rows = embedding(ids, table);
    const std::string line = std::to_string(__LINE__ - 1);
    const Tensor good = table + 1;
    try {
      rows.redistribute({Replicate()}).to_host();
      ADD_FAILURE() << "an id outside of the table wasn't reported";
    } catch (const RuntimeFault& fault) {
      for (const std::string& part : {std::string("embedding"), std::string("device 3"), ":" + line})
        EXPECT_NE(std::string(fault.what()).find(part), std::string::npos) << fault.what();
    }
    return std::vector<HostTensor>{good.to_host()};
  });
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.values.size(), 1u);
}

// The device goes on with whatever the failed call left, and the next one may stumble over that.
TEST_F(FakeJob, WhatFailsBecauseOfAFailureIsNoFailureOfItsOwn) {
  const Outcome outcome = run_on("fake", 2, [] {
    const DeviceMesh mesh = cpu_mesh({4});
    const Tensor ids = distribute(HostTensor::of<int64_t>({4}, {0, 1, 2, 6}), mesh, {Shard(0)});
    const Tensor table = full({6, 2}, 0.0, {.mesh = mesh, .placements = {Replicate()}});
    const Tensor found = embedding(to(embedding(ids, table), kInt64), table);
    try {
      found.redistribute({Replicate()}).to_host();
      ADD_FAILURE() << "an id outside of the table wasn't reported";
    } catch (const RuntimeFault&) {
    }
    client().synchronize();
    return std::vector<HostTensor>();
  });
  EXPECT_EQ(outcome.error, "");
}

TEST_F(FakeJob, AMissingWaitForTheComputeStreamIsFound) {
  on_cpu();
  EXPECT_TRUE(is_found(without_wait(StreamKind::kCommunication, StreamKind::kCompute), "fake:0", 2));
  EXPECT_TRUE(is_found(without_wait(StreamKind::kCommunication, StreamKind::kCompute), "fake:1", 1));
}

TEST_F(FakeJob, AMissingWaitForTheCommunicationStreamIsFound) {
  on_cpu();
  EXPECT_TRUE(is_found(without_wait(StreamKind::kCompute, StreamKind::kCommunication), "fake:0", 2));
  EXPECT_TRUE(is_found(without_wait(StreamKind::kCompute, StreamKind::kCommunication), "fake:1", 1));
}

TEST_F(FakeJob, AMissingWaitForCopiesIsFound) {
  on_cpu();
  EXPECT_TRUE(is_found(without_wait(StreamKind::kCompute, StreamKind::kCopy), "fake:0", 2));
  EXPECT_TRUE(is_found(without_wait(StreamKind::kCopy, StreamKind::kCompute), "fake:0", 2));
}

TEST_F(FakeJob, AMissingWaitBetweenComputeStreamsIsFound) {
  on_cpu();
  set("DTORCH_COMPUTE_STREAMS", "3");
  EXPECT_TRUE(is_found(without_wait(StreamKind::kCompute, StreamKind::kCompute), "fake:0", 2));
}

TEST_F(FakeJob, AMissingHandleIsFound) {
  on_cpu();
  Faults no_keep, no_share;
  no_keep.missing_keep = no_share.missing_share = true;
  EXPECT_TRUE(is_found(no_keep, "fake:0", 2));
  EXPECT_TRUE(is_found(no_share, "fake:0", 2));
}

TEST_F(FakeJob, ASwappedOrderOfCollectivesIsFoundAndSaysWhoWaitsForWhat) {
  set("DTORCH_DEADLINE", "4");
  Faults swapped;
  swapped.swap_every = 3;
  fake::plant(swapped);
  const Outcome outcome = run_on("fake", 2);
  EXPECT_NE(outcome.error.find("a collective stands still: rank 0 "), std::string::npos) << outcome.error;
}

}  // namespace
}  // namespace dtorch::test
