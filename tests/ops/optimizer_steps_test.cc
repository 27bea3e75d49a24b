// Optimizer steps and norms over lists: the same on every layout as on one device, and there as their formulas say.
// They take lists whose layouts must agree, so that the generic checker has no samples for them.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using OptimizerStepTest = KernelTest;

constexpr int64_t kSteps = 3;
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{5, 3}, {7}, {1, 4}, {0, 2}};
  return all;
}

std::vector<Tensor> tensors(uint64_t seed, const DeviceMesh& mesh, const Placements& placements) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < shapes().size(); ++i) {
    Placements legal = placements;
    for (Placement& placement : legal) {
      if (placement.is_shard() && placement.dim >= shapes()[i].ndim()) placement = Replicate();
    }
    all.push_back(distribute(normal(shapes()[i], kFloat64, seed + i), mesh, legal));
  }
  return all;
}

std::vector<HostTensor> read(const std::vector<Tensor>& all) {
  std::vector<HostTensor> values;
  for (const Tensor& tensor : all) values.push_back(tensor.to_host());
  return values;
}

std::vector<std::pair<DeviceMesh, Placements>> layouts() {
  return {{cpu_mesh({2}), {Replicate()}},
          {cpu_mesh({2}), {Shard(0)}},
          {cpu_mesh({3}), {Shard(0)}},
          {cpu_mesh({3}), {Shard(1)}},
          {cpu_mesh({2, 2}), {Shard(0), Shard(1)}},
          {cpu_mesh({2, 2}), {Shard(0), Shard(0)}},
          {cpu_mesh({2, 2}), {Replicate(), Shard(1)}}};
}

void expect_equal(const std::vector<Tensor>& got, const std::vector<HostTensor>& want, const std::string& name) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(check_tensor(got[i], want[i], 0), "") << name << " " << i;
}

AdamWResult adamw(const DeviceMesh& mesh, const Placements& placements, const AdamWConstants& constants) {
  AdamWResult state{tensors(1, mesh, placements), {}, {}};
  for (const Tensor& p : state.params) {
    state.first_moments.push_back(zeros_like(p));
    state.second_moments.push_back(zeros_like(p));
  }
  for (int64_t step = 1; step <= kSteps; ++step) {
    const std::vector<Tensor> grads = tensors(static_cast<uint64_t>(100 * step), mesh, placements);
    state = adamw_step(state.params, grads, state.first_moments, state.second_moments, 0.1, step, constants);
  }
  return state;
}

TEST_F(OptimizerStepTest, AdamWFollowsItsFormulaOnOneDevice) {
  const AdamWConstants c{.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0.05};
  const AdamWResult result = adamw(cpu_mesh({1}), {Replicate()}, c);
  for (size_t i = 0; i < shapes().size(); ++i) {
    std::vector<double> p = normal(shapes()[i], kFloat64, 1 + i).to_vector<double>(), m(p.size()), v(p.size());
    for (int64_t step = 1; step <= kSteps; ++step) {
      const std::vector<double> g =
          normal(shapes()[i], kFloat64, static_cast<uint64_t>(100 * step) + i).to_vector<double>();
      const double bias1 = 1 - std::pow(c.beta1, step), bias2 = 1 - std::pow(c.beta2, step);
      for (size_t e = 0; e < p.size(); ++e) {
        p[e] *= 1 - 0.1 * c.weight_decay;
        m[e] = c.beta1 * m[e] + (1 - c.beta1) * g[e];
        v[e] = c.beta2 * v[e] + (1 - c.beta2) * g[e] * g[e];
        p[e] -= 0.1 / bias1 * m[e] / (std::sqrt(v[e]) / std::sqrt(bias2) + c.eps);
      }
    }
    EXPECT_EQ(difference(result.params[i].to_host(), HostTensor::of<double>(shapes()[i], p), 1e-12), "") << i;
    EXPECT_EQ(difference(result.first_moments[i].to_host(), HostTensor::of<double>(shapes()[i], m), 1e-12), "") << i;
    EXPECT_EQ(difference(result.second_moments[i].to_host(), HostTensor::of<double>(shapes()[i], v), 1e-12), "") << i;
  }
}

TEST_F(OptimizerStepTest, AdamWIsBitwiseTheSameOnEveryLayout) {
  const AdamWResult one = adamw(cpu_mesh({1}), {Replicate()}, {});
  const std::vector<HostTensor> params = read(one.params), m = read(one.first_moments), v = read(one.second_moments);
  for (const auto& [mesh, placements] : layouts()) {
    SCOPED_TRACE(placements.str() + " on " + mesh.sizes_str());
    const AdamWResult result = adamw(mesh, placements, {});
    expect_equal(result.params, params, "parameter");
    expect_equal(result.first_moments, m, "first moment");
    expect_equal(result.second_moments, v, "second moment");
  }
}

SgdResult sgd(const DeviceMesh& mesh, const Placements& placements, const SgdConstants& constants) {
  SgdResult state{tensors(1, mesh, placements), {}};
  for (int64_t step = 1; step <= kSteps; ++step) {
    state = sgd_step(state.params, tensors(static_cast<uint64_t>(100 * step), mesh, placements), state.buffers, 0.1,
                     constants);
  }
  return state;
}

TEST_F(OptimizerStepTest, SgdFollowsItsFormulaOnOneDevice) {
  for (const SgdConstants& c : {SgdConstants{}, SgdConstants{.momentum = 0.9},
                                SgdConstants{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}}) {
    const SgdResult result = sgd(cpu_mesh({1}), {Replicate()}, c);
    for (size_t i = 0; i < shapes().size(); ++i) {
      std::vector<double> p = normal(shapes()[i], kFloat64, 1 + i).to_vector<double>(), buffer(p.size());
      for (int64_t step = 1; step <= kSteps; ++step) {
        const std::vector<double> g =
            normal(shapes()[i], kFloat64, static_cast<uint64_t>(100 * step) + i).to_vector<double>();
        for (size_t e = 0; e < p.size(); ++e) {
          const double decayed = g[e] + c.weight_decay * p[e];
          buffer[e] = step == 1 ? decayed : c.momentum * buffer[e] + decayed;
          p[e] -= 0.1 * (c.momentum == 0 ? decayed : c.nesterov ? decayed + c.momentum * buffer[e] : buffer[e]);
        }
      }
      EXPECT_EQ(difference(result.params[i].to_host(), HostTensor::of<double>(shapes()[i], p), 1e-12), "") << i;
    }
  }
}

TEST_F(OptimizerStepTest, SgdIsBitwiseTheSameOnEveryLayout) {
  const SgdConstants constants{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
  const std::vector<HostTensor> params = read(sgd(cpu_mesh({1}), {Replicate()}, constants).params);
  for (const auto& [mesh, placements] : layouts())
    expect_equal(sgd(mesh, placements, constants).params, params, placements.str());
}

TEST_F(OptimizerStepTest, SumOfSquaresCountsEachElementOnce) {
  const double one = sum_of_squares(tensors(1, cpu_mesh({1}), {Replicate()})).item<double>();
  for (const auto& [mesh, placements] : layouts()) {
    const Tensor total = sum_of_squares(tensors(1, mesh, placements));
    EXPECT_EQ(total.placements(), Placements(mesh.num_axes(), Replicate()));
    EXPECT_NEAR(total.item<double>(), one, 1e-12 * one) << placements.str() << " on " << mesh.sizes_str();
  }
  EXPECT_NEAR(sum_of_squares(tensors(1, cpu_mesh({3}), {Partial()})).item<double>(), one, 1e-12 * one);
}

TEST_F(OptimizerStepTest, ScaleAllIsAProductWithOneNumber) {
  for (const auto& [mesh, placements] : layouts()) {
    const std::vector<Tensor> scaled =
        scale_all(tensors(1, mesh, placements), full({}, 0.25, {.mesh = mesh, .dtype = kFloat64}));
    for (size_t i = 0; i < scaled.size(); ++i) {
      EXPECT_EQ(check_tensor(scaled[i], (from_host(normal(shapes()[i], kFloat64, 1 + i)) * 0.25).to_host(), 0), "")
          << i;
    }
  }
}

}  // namespace
}  // namespace dtorch::test
