// Memory of every device by the real counters: what is in use, peaks, and what parallel forms promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "dtorch/nn.h"
#include "ops/nn/ring_step.h"
#include "runtime/client/record.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

class MemoryTest : public KernelTest {
 protected:
  static std::vector<int64_t> in_use() {
    client().synchronize();
    return client().stats().bytes_in_use_per_device;
  }
  static std::vector<int64_t> peaks() {
    client().synchronize();
    return client().stats().peak_bytes_per_device;
  }
};

TEST_F(MemoryTest, EveryDeviceReportsWhatItHolds) {
  const std::vector<int64_t> before = in_use();
  ASSERT_EQ(before.size(), 8u);
  Tensor split = zeros({7, 1000}, {.mesh = cpu_mesh({3}), .placements = {Shard(0)}});
  std::vector<int64_t> after = in_use();
  const int64_t rows[] = {3, 2, 2, 0, 0, 0, 0, 0};
  for (size_t d = 0; d < 8; ++d) EXPECT_EQ(after[d] - before[d], rows[d] * 4000) << "device " << d;
  split = Tensor();
  EXPECT_EQ(in_use(), before);
}

TEST_F(MemoryTest, WhatArrivesIsChargedToTheDeviceThatGetsIt) {
  const std::vector<int64_t> before = in_use();
  const Tensor here = zeros({500}, {.mesh = DeviceMesh("cpu", {1}, {2})});
  const Tensor there = here.redistribute(Layout(DeviceMesh("cpu", {1}, {5}), {Replicate()}, 1));
  const std::vector<int64_t> after = in_use();  // nothing has used it yet
  for (size_t d = 0; d < 8; ++d) EXPECT_EQ(after[d] - before[d], d == 2 || d == 5 ? 2000 : 0) << "device " << d;
}

TEST_F(MemoryTest, PeaksCountFromTheLastReset) {
  const DeviceMesh mesh = cpu_mesh({2});
  client().reset_peak_bytes();
  const std::vector<int64_t> before = in_use();
  EXPECT_EQ(client().stats().peak_bytes_per_device, before) << "before anybody has acknowledged anything";
  zeros({100000}, {.mesh = mesh}).sum().item<float>();
  EXPECT_GE(peaks()[0] - before[0], 400000);
  EXPECT_GE(peaks()[1] - before[1], 400000);
  EXPECT_EQ(peaks()[2], before[2]);
  EXPECT_GE(client().stats().peak_bytes_per_node[0] - before[0], 400000);
  client().reset_peak_bytes();
  zeros({10}, {.mesh = mesh}).sum().item<float>();
  EXPECT_LT(peaks()[0] - before[0], 400000);
  EXPECT_LT(client().stats().peak_bytes_per_node[0] - before[0], 400000);
}

// Parameters and optimizer state: three numbers a parameter.
TEST_F(MemoryTest, ZeroStage3KeepsAQuarterOnFourDevicesBetweenSteps) {
  const nn::LlamaConfig config{.dim = 64, .layers = 2, .heads = 4, .vocab = 256};
  const auto held = [&](int64_t devices) {
    const DeviceMesh mesh = cpu_mesh({devices}, {"dp"});
    const std::vector<int64_t> before = in_use();
    nn::Llama model(config, {.mesh = mesh, .zero = "dp", .zero_stage = 3});
    optim::AdamW optimizer(model.parameters());
    for (int step = 0; step < 2; ++step) {
      const Tensor tokens = randint(0, 256, {4, 16}, {.mesh = mesh, .placements = {Shard(0)}});
      model.loss(tokens, tokens).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    const std::vector<int64_t> after = in_use();
    std::vector<int64_t> bytes;
    for (size_t d = 0; d < static_cast<size_t>(devices); ++d) bytes.push_back(after[d] - before[d]);
    EXPECT_GE(bytes[0], 3 * 4 * model.num_parameters() / devices) << "of " << devices << ": the counter misses some";
    return *std::max_element(bytes.begin(), bytes.end());
  };
  const int64_t whole = held(1), quarter = held(4);
  EXPECT_LE(static_cast<double>(quarter), 0.27 * static_cast<double>(whole));
}

// Parameters and state are handed over to the step's call, which writes into them. A step's first calls may be sent off
// before the old values are given up; of a step that repeats itself they wait for it.
TEST_F(MemoryTest, OptimizerStepsWriteInPlace) {
  const int64_t one = 50000 * 4;
  const auto least_growth = [&](const std::function<std::unique_ptr<optim::Optimizer>(nn::Parameter)>& make) {
    nn::Parameter parameter(rand({50000}, {.mesh = cpu_mesh({1})}).requires_grad_(true));
    const std::unique_ptr<optim::Optimizer> optimizer = make(parameter);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < 10; ++i) {
      (parameter.value() * parameter.value()).sum().backward();
      client().reset_peak_bytes();
      const int64_t before = in_use()[0];
      optimizer->step();
      least = std::min(least, peaks()[0] - before);
      optimizer->zero_grad();
    }
    return least;
  };
  EXPECT_LT(least_growth([](nn::Parameter p) { return std::make_unique<optim::AdamW>(std::vector{std::move(p)}); }),
            one);
  EXPECT_LT(least_growth([](nn::Parameter p) {
              return std::make_unique<optim::SGD>(std::vector{std::move(p)}, optim::SGDOptions{.momentum = 0.9});
            }),
            one);
}

// In blocks, one device's part of q (as large as one of k, v and the output): its q, k, v and output, two blocks of
// keys and values that are not its own, and one of a sum; with backward the gradients of all these as well. Blocks are
// small enough to travel in messages, so that what a slow neighbour hasn't taken yet isn't on the device's account.
TEST_F(MemoryTest, ARingHoldsTwoBlocksOfKeysAndValues) {
  const int64_t heads = 8, block_tokens = 24, width = 128;
  const int64_t block = heads * block_tokens * width * 4;
  for (int64_t devices : {2, 4, 8}) {
    const DeviceMesh mesh = cpu_mesh({devices}, {"ring_cp"});
    for (RingOrder order : {RingOrder::kContiguous, RingOrder::kBalanced}) {
      for (bool with_backward : {false, true}) {
        const std::string name = std::to_string(devices) + (order == RingOrder::kBalanced ? "_balanced" : "") +
                                 (with_backward ? "_backward" : "");
        SCOPED_TRACE(name);
        const std::vector<int64_t> before = in_use();
        const auto leaf = [&] {
          return randn({1, heads, block_tokens * devices, width},
                       {.mesh = mesh, .placements = {Shard(2)}, .requires_grad = true});
        };
        const Tensor q = leaf(), k = leaf(), v = leaf();
        client().reset_peak_bytes();
        const Tensor out = scaled_dot_product_attention(q, k, v, {.is_causal = true, .ring_order = order});
        if (with_backward) out.sum().backward();
        const std::vector<int64_t> peak = peaks();
        const double most = (with_backward ? 4 + 4 + 4 + 4 + 1 : 4 + 4 + 1) * 1.05;
        for (size_t d = 0; d < static_cast<size_t>(devices); ++d) {
          const double blocks = static_cast<double>(peak[d] - before[d]) / static_cast<double>(block);
          EXPECT_LE(blocks, most) << "device " << d;
          EXPECT_GE(blocks, 4) << "device " << d << ": the counter misses some";
          RecordProperty("blocks_" + name + "_" + std::to_string(d), std::to_string(blocks));
        }
      }
    }
  }
}

// Whether a step's old sum goes with it is known only where its release travels in the same piece, so that it mustn't
// matter: here somebody holds it.
TEST_F(MemoryTest, AStepOfARingTakesTheMemoryOfOneSumWhoeverHoldsTheOldOne) {
  const int64_t block = int64_t{8} * 256 * 128 * 4;
  const DeviceMesh mesh = cpu_mesh({1}, {"ring_cp"});
  const auto make = [&] { return randn({1, 8, 256, 128}, {.mesh = mesh, .placements = {Shard(2)}}); };
  const Tensor q = make(), k = make(), v = make();
  const Layout of_lse(mesh, {Shard(2)}, 3);
  const Layout layouts[] = {q.layout(), of_lse};
  const auto step = [&](const std::vector<Tensor>& inputs) {
    return record_list(ring_attention_step_op, nn_ops::RingAttrs{.scale = 0.1, .has_sum = inputs.size() > 3}, inputs, 2,
                       Where::current(), {.output_layouts = layouts});
  };
  const std::vector<Tensor> first = step({q, k, v});
  const std::vector<int64_t> before = in_use();
  client().reset_peak_bytes();
  const std::vector<Tensor> second = step({q, k, v, first[0], first[1]});
  const double blocks = static_cast<double>(peaks()[0] - before[0]) / static_cast<double>(block);
  EXPECT_GE(blocks, 1) << "the counter misses the result";
  EXPECT_LE(blocks, 1.2);
  EXPECT_EQ(difference(second[0].to_host(), first[0].to_host(), 1e-5), "") << "the same keys twice weigh the same";
}

}  // namespace
}  // namespace dtorch::test
