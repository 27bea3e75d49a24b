// Nodes that are lost while their devices, and those of others, are in collectives: who waits is cancelled, the next
// epoch has communicators of its own, and losses are those of the undisturbed run, to the last bit.
#include <algorithm>

#include "dtorch/nn.h"
#include "runtime/accelerator/fake/fake_meeting.h"
#include "tests/launch/recovery_job.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

constexpr int kSteps = 5;

RuntimeOptions options_for(const std::string& device, int32_t compute_streams = 1) {
  RuntimeOptions options;
  options.devices = 4;
  options.device = device;
  options.compute_streams = compute_streams;
  options.recover = true;
  options.snapshot_every = 2;
  return options;
}

using Losses = std::vector<float>;

// Tensor parallel, with the optimizer's state sharded: all kinds of collectives.
Losses train_model(Client& client) {
  constexpr int64_t kBatch = 4, kLength = 8, kVocab = 32;
  client.manual_seed(3);
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const nn::Llama model({.dim = 16, .layers = 1, .heads = 2, .vocab = kVocab, .ffn = 32},
                        {.mesh = mesh, .tp = "tp", .zero = "dp"});
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  Losses losses;
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = [&](int64_t shift) {
      std::vector<int64_t> tokens;
      for (int64_t b = 0; b < kBatch; ++b) {
        for (int64_t t = shift; t < kLength + shift; ++t) tokens.push_back((b * 7 + t * 5 + step * 3) % kVocab);
      }
      return from_host(HostTensor::of<int64_t>({kBatch, kLength}, tokens),
                       {.mesh = mesh, .placements = {Shard(0), Replicate()}});
    };
    const Tensor loss = model.loss(batch(0), batch(1));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

// Ragged rows, which go through the host, between collectives.
Losses train_experts(Client&) {
  constexpr int64_t kDevices = 4, kTokens = 8, kDim = 6, kInner = 3;
  const TensorOptions split{.mesh = init_device_mesh("cpu", {kDevices}, {"ep"}), .placements = {Shard(0)}};
  const auto weights = [&](const Shape& shape, uint64_t seed) {
    return nn::Parameter(from_host(normal(shape, kFloat32, seed), split));
  };
  const nn::Parameter w1 = weights({kDevices, kInner, kDim}, 1), w3 = weights({kDevices, kInner, kDim}, 2),
                      w2 = weights({kDevices, kDim, kInner}, 3);
  optim::AdamW optimizer({w1, w3, w2}, {.lr = 1e-2});
  Losses losses;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> chosen(kTokens * kDevices, 0.0f);
    for (int64_t token = 0; token < kTokens; ++token)
      chosen[static_cast<size_t>(token * kDevices + (token * token + step) % kDevices)] = 1.0f;
    const Tensor gates = from_host(HostTensor::of<float>({kTokens, kDevices}, chosen), split);
    const Tensor x = from_host(normal({kTokens, kDim}, kFloat32, 10 + static_cast<uint64_t>(step)), split);
    const Tensor loss = mean(square(expert_parallel(x, gates, w1, w3, w2)));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

struct Outcome {
  Losses losses;
  std::string failure;
  RecoveryStats stats;
  int64_t num_messages = 0;
};

Outcome outcome_of(int32_t nodes, const RuntimeOptions& options, Losses (*program)(Client&),
                   const std::vector<Fault>& faults = {}) {
  Outcome outcome;
  RecoveryJob job(nodes, options, faults);
  job.run([&](Client& client) { outcome.losses = program(client); });
  EXPECT_TRUE(job.ended_in_order());
  outcome.failure = job.failure();
  outcome.stats = job.stats();
  outcome.num_messages = job.num_messages();
  return outcome;
}

class FakeRecovery : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_kernels()) GTEST_SKIP() << "this build has no kernels";
  }
  // With a loss at each of so many places.
  static void expect_only_pauses(const RuntimeOptions& options, Losses (*program)(Client&), int64_t num_losses) {
    const Outcome undisturbed = outcome_of(3, options, program);
    ASSERT_EQ(undisturbed.failure, "");
    ASSERT_EQ(undisturbed.losses.size(), static_cast<size_t>(kSteps));
    const int64_t stride = std::max<int64_t>(1, undisturbed.num_messages / num_losses);
    for (int64_t after = 2; after <= undisturbed.num_messages; after += stride) {
      SCOPED_TRACE("after message " + std::to_string(after) + " of " + std::to_string(undisturbed.num_messages));
      const Outcome outcome = outcome_of(3, options, program, {{after, static_cast<int32_t>(after / stride % 3)}});
      ASSERT_EQ(outcome.failure, "");
      ASSERT_EQ(outcome.losses, undisturbed.losses);
    }
  }
};

TEST_F(FakeRecovery, ALossInACollectiveIsOnlyAPause) {
  const int64_t before = fake::num_cancelled();
  expect_only_pauses(options_for("fake:0:1"), train_model, 12);
  EXPECT_GT(fake::num_cancelled(), before) << "no loss fell into a collective";
}

TEST_F(FakeRecovery, SeveralComputeStreamsToo) { expect_only_pauses(options_for("fake:0:2", 2), train_model, 4); }

TEST_F(FakeRecovery, ALossOfWhatGoesThroughTheHostIsOnlyAPause) {
  expect_only_pauses(options_for("fake:1:3"), train_model, 6);
}

TEST_F(FakeRecovery, ALossInAnExchangeOfRaggedRowsIsOnlyAPause) {
  expect_only_pauses(options_for("fake:0:4"), train_experts, 8);
}

TEST_F(FakeRecovery, SparesAndASecondLossWhileRecovering) {
  RuntimeOptions options = options_for("fake:0:5");
  const Outcome undisturbed = outcome_of(3, options, train_model);
  options.spares = 2;
  const int64_t after = undisturbed.num_messages / 2;
  for (int64_t gap : {0, 3}) {
    SCOPED_TRACE("messages between: " + std::to_string(gap));
    const Outcome outcome = outcome_of(5, options, train_model, {{after, 1}, {after + gap, 2}});
    ASSERT_EQ(outcome.failure, "");
    ASSERT_EQ(outcome.losses, undisturbed.losses);
    EXPECT_GE(outcome.stats.epoch, 2u);
  }
}

}  // namespace
}  // namespace dtorch::test
