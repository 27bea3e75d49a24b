// The mixture of experts: every layout as one device, all experts as the dense layer, and capacity by global order.
#include <gtest/gtest.h>

#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using nn::MoeConfig;
using nn::MoeResult;

class MoeTest : public KernelTest {
 protected:
  static constexpr int64_t kDim = 6, kInner = 5, kExperts = 4;
  struct Placed {
    Layout tokens, gate, inner, outer;
  };
  static MoeResult run(const Placed& placed, const MoeConfig& config, std::vector<HostTensor>* gradients = nullptr) {
    const auto leaf = [](const Shape& shape, uint64_t seed, const Layout& layout) {
      return distribute(normal(shape, kFloat64, seed), layout).requires_grad_();
    };
    const std::vector<Tensor> leaves = {leaf({3, 5, kDim}, 1, placed.tokens), leaf({kExperts, kDim}, 2, placed.gate),
                                        leaf({kExperts, kInner, kDim}, 3, placed.inner),
                                        leaf({kExperts, kInner, kDim}, 4, placed.inner),
                                        leaf({kExperts, kDim, kInner}, 5, placed.outer)};
    const MoeResult result = nn::moe_forward(leaves[0], config, leaves[1], leaves[2], leaves[3], leaves[4]);
    if (gradients != nullptr) {
      (result.y.reduced() * distribute(normal(result.y.shape(), kFloat64, 6), result.y.layout().without_partial()))
          .sum()
          .backward();
      for (const Tensor& x : leaves) gradients->push_back(x.grad().to_host());
    }
    return result;
  }
  static Placed on_one_device() {
    const Layout one = Layout::replicated(cpu_mesh({1}));
    return {one, one, one, one};
  }
  static MoeConfig config(int64_t top_k, double capacity = 0) {
    return {.dim = kDim, .inner = kInner, .experts = kExperts, .top_k = top_k, .capacity_factor = capacity};
  }
};

TEST_F(MoeTest, ExpertAndTensorParallelGiveTheValuesAndGradientsOfOneDevice) {
  const DeviceMesh mesh = cpu_mesh({2, 3, 1}, {"dp", "ep", "tp"}), tensor = cpu_mesh({1, 2, 2}, {"dp", "ep", "tp"});
  const auto placed = [](const DeviceMesh& on) {
    return Placed{Layout(on, {Shard(0), Shard(0), Replicate()}, 3), Layout::replicated(on),
                  Layout(on, {Replicate(), Shard(0), Shard(1)}, 3), Layout(on, {Replicate(), Shard(0), Shard(2)}, 3)};
  };
  for (double capacity : {0.0, 0.75}) {
    std::vector<HostTensor> want_gradients;
    const MoeResult want = run(on_one_device(), config(2, capacity), &want_gradients);
    for (const DeviceMesh& on : {mesh, tensor}) {
      std::vector<HostTensor> gradients;
      const MoeResult got = run(placed(on), config(2, capacity), &gradients);
      EXPECT_EQ(difference(got.y.reduced().to_host(), want.y.to_host(), 1e-12), "");
      EXPECT_NEAR(got.aux.item<double>(), want.aux.item<double>(), 1e-12);
      EXPECT_NEAR(got.z.item<double>(), want.z.item<double>(), 1e-12);
      for (size_t i = 0; i < gradients.size(); ++i)
        EXPECT_EQ(difference(gradients[i], want_gradients[i], 1e-11), "") << "input " << i;
    }
  }
}

TEST_F(MoeTest, TheBalanceIsOneWhenExpertsAreEquallyLikely) {
  const Layout one = Layout::replicated(cpu_mesh({1}));
  const Tensor x = distribute(normal({8, kDim}, kFloat64, 1), one), zero = zeros({kExperts, kDim}, {.dtype = kFloat64});
  const Tensor w = zeros({kExperts, kInner, kDim}, {.dtype = kFloat64}),
               w2 = zeros({kExperts, kDim, kInner}, {.dtype = kFloat64});
  EXPECT_NEAR(nn::moe_forward(x, config(2), zero, w, w, w2).aux.item<double>(), 1.0, 1e-12);
}

// Each expert is a slice of a dense layer; all of them, each with weight 1, are that layer.
TEST_F(MoeTest, AllExpertsWithWeightOneAreTheDenseLayer) {
  const DeviceMesh mesh = cpu_mesh({2, 2}, {"ep", "tp"});
  const HostTensor w1 = normal({8, 6}, kFloat64, 1), w3 = normal({8, 6}, kFloat64, 2), w2 = normal({6, 8}, kFloat64, 3),
                   x = normal({5, 6}, kFloat64, 4);
  const Tensor dense_x = from_host(x);
  const Tensor dense = linear(silu(linear(dense_x, from_host(w1))) * linear(dense_x, from_host(w3)), from_host(w2));
  const auto experts_of = [](const Tensor& rows) { return rows.reshape({4, 2, 6}); };
  const Layout whole = Layout::replicated(mesh);
  const Placements split = {Shard(0), Shard(1)}, split_last = {Shard(0), Shard(2)};
  const Tensor gates = ones({5, 4}, {.mesh = mesh, .dtype = kFloat64});
  const Tensor y = moe_experts(distribute(x, whole), gates, experts_of(distribute(w1, whole)).redistribute(split),
                               experts_of(distribute(w3, whole)).redistribute(split),
                               distribute(w2, whole).reshape({6, 4, 2}).permute({1, 0, 2}).redistribute(split_last));
  EXPECT_EQ(difference(y.reduced().to_host(), dense.to_host(), 1e-12), "");
}

TEST_F(MoeTest, TheModuleAddsItsSharedExpertAndDoesntDependOnItsLayout) {
  const auto run = [&](const nn::MoeParallel& parallel, const Layout& tokens) {
    manual_seed(4);
    const nn::MoE layer({.dim = 6, .inner = 4, .experts = 4, .top_k = 2, .renormalize = false, .shared_inner = 5},
                        parallel);
    EXPECT_EQ(layer.named_parameters().size(), 7u);
    return layer(distribute(normal({7, 6}, kFloat64, 2), tokens)).y.to_host();
  };
  const DeviceMesh mesh = cpu_mesh({2, 2}, {"ep", "tp"});
  const HostTensor want = run({.dtype = kFloat64}, Layout::replicated(cpu_mesh({1})));
  EXPECT_EQ(difference(run({.mesh = mesh, .ep = "ep", .tp = "tp", .dtype = kFloat64},
                           Layout(mesh, {Shard(0), Replicate()}, 2)),
                       want, 1e-12),
            "");
  EXPECT_THROW(nn::MoE({.dim = 2, .inner = 2, .experts = 2, .top_k = 3}), UserError);
}

TEST_F(MoeTest, TokensBeyondAnExpertsCapacityAreDroppedInGlobalOrder) {
  // Every token likes expert 1 best; with 8 tokens, top 1 of 2 experts and factor 0.5 it takes the first 2.
  const DeviceMesh mesh = cpu_mesh({3}, {"ep"});
  const Layout tokens(mesh, {Shard(0)}, 2), experts(mesh, {Shard(0)}, 3);
  const HostTensor ones_host = HostTensor::full({8, 2}, 1.0);
  const HostTensor gate = HostTensor::of<double>({2, 2}, {0, 0, 1, 1});
  const HostTensor w = HostTensor::full({2, 3, 2}, 1.0), w2 = HostTensor::full({2, 2, 3}, 1.0);
  const MoeConfig limited{.dim = 2, .inner = 3, .experts = 2, .top_k = 1, .capacity_factor = 0.5};
  const Tensor y = nn::moe_forward(distribute(ones_host, tokens), limited, distribute(gate, Layout::replicated(mesh)),
                                   distribute(w, experts), distribute(w, experts), distribute(w2, experts))
                       .y;
  const std::vector<double> values = y.to_host().to_vector<double>();
  for (size_t token = 0; token < 8; ++token) {
    if (token < 2) {
      EXPECT_GT(values[2 * token], 1.0) << token;
    } else {
      EXPECT_EQ(values[2 * token], 0.0) << token;
    }
  }
}

}  // namespace
}  // namespace dtorch::test
