// Random values of distributions: the same on every layout, and distributed as they should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using DistributionsTest = KernelTest;

std::vector<TensorOptions> layouts(int64_t ndim) {
  std::vector<TensorOptions> all;
  for (int64_t devices : {2, 3}) {
    for (const Placement& placement : {Replicate(), Shard(0), Shard(ndim - 1), Partial(), Partial(kMax)}) {
      all.push_back({.mesh = cpu_mesh({devices}), .placements = {placement}});
    }
  }
  all.push_back({.mesh = cpu_mesh({2, 2}), .placements = {Shard(ndim - 1), Shard(0)}});
  return all;
}

void expect_same_everywhere(const std::string& name, int64_t ndim, const std::function<Tensor(TensorOptions)>& make) {
  manual_seed(3);
  const HostTensor one = make({}).to_host();
  for (const TensorOptions& options : layouts(ndim)) {
    manual_seed(3);
    const Tensor tensor = make(options);
    EXPECT_EQ(tensor.placements(), options.placements);
    EXPECT_EQ(check_tensor(tensor, one, 0), "")
        << name << " " << options.placements.str() << " on " << options.mesh.sizes_str();
  }
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const Tensor& x) {
  const std::vector<double> values = x.to_host().to(kFloat64).to_vector<double>();
  Moments out;
  const auto count = static_cast<double>(values.size());
  for (double v : values) out.mean += v / count;
  for (double v : values) out.variance += (v - out.mean) * (v - out.mean) / count;
  return out;
}

TEST_F(DistributionsTest, ValuesAreTheSameOnEveryLayout) {
  for (DType dtype : {kFloat32, kFloat64}) {
    const auto with = [dtype](TensorOptions options) {
      options.dtype = dtype;
      return options;
    };
    expect_same_everywhere("normal", 2, [&](TensorOptions o) { return dtorch::normal(3.0, 0.5, {5, 3}, with(o)); });
    expect_same_everywhere("uniform", 2, [&](TensorOptions o) { return uniform(-1.0, 2.5, {5, 3}, with(o)); });
    expect_same_everywhere("exponential", 2, [&](TensorOptions o) { return exponential(2.0, {5, 3}, with(o)); });
    expect_same_everywhere("gumbel", 2, [&](TensorOptions o) { return gumbel({5, 3}, with(o)); });
    expect_same_everywhere("bernoulli", 2, [&](TensorOptions o) { return bernoulli(0.4, {5, 3}, with(o)); });
    expect_same_everywhere("linspace", 1, [&](TensorOptions o) { return linspace(-1.0, 2.0, 7, with(o)); });
    expect_same_everywhere("logspace", 1, [&](TensorOptions o) { return logspace(-1.0, 2.0, 7, 10.0, with(o)); });
  }
  expect_same_everywhere("randperm", 1, [](TensorOptions o) { return randperm(11, o); });
}

TEST_F(DistributionsTest, MomentsAreThoseOfTheDistribution) {
  manual_seed(5);
  const auto expect = [](const char* name, const Tensor& x, double mean, double variance) {
    const Moments found = moments(x);
    EXPECT_NEAR(found.mean, mean, 5 * std::sqrt(variance / static_cast<double>(x.numel()))) << name;
    EXPECT_NEAR(found.variance, variance, 0.15 * variance) << name;
  };
  const Shape shape = {4000};
  expect("normal", dtorch::normal(3.0, 0.5, shape), 3, 0.25);
  expect("normal of tensors", dtorch::normal(full(shape, 3.0), full(shape, 0.5)), 3, 0.25);
  expect("uniform", uniform(-1, 2, shape), 0.5, 0.75);
  expect("exponential", exponential(2, shape), 0.5, 0.25);
  expect("gumbel", gumbel(shape), 0.5772156649, 1.6449340668);
  expect("bernoulli", bernoulli(0.3, shape), 0.3, 0.21);
  expect("bernoulli of tensors", bernoulli(full(shape, 0.3)), 0.3, 0.21);
  for (double rate : {0.5, 4.0, 60.0}) expect("poisson", poisson(full(shape, rate)), rate, rate);
  expect("alpha dropout", alpha_dropout(randn(shape), 0.3), 0, 1);
}

TEST_F(DistributionsTest, ClassesAreDrawnAsOftenAsTheirWeightsSay) {
  manual_seed(6);
  const std::vector<float> weights = {1, 0, 3, 4};
  const Tensor probs = from_host(HostTensor::of<float>({4}, weights));
  constexpr int64_t kCount = 8000;
  const Tensor rows = expand(unsqueeze(probs, 0), {kCount, 4});
  for (const Tensor& drawn : {multinomial(probs, kCount, true), categorical(rows), categorical({}, log(rows)),
                              flatten(multinomial(rows, 1))}) {
    std::vector<double> counts(4);
    for (int64_t id : drawn.to_host().to_vector<int64_t>()) ++counts.at(static_cast<size_t>(id));
    for (size_t c = 0; c < 4; ++c) EXPECT_NEAR(counts[c] / kCount, weights[c] / 8.0, 0.03) << "class " << c;
    EXPECT_EQ(counts[1], 0);
  }
}

TEST_F(DistributionsTest, NothingIsDrawnTwiceWithoutReplacement) {
  std::vector<int64_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  for (const Tensor& drawn : {multinomial(ones({50}), 50), randperm(50)}) {
    std::vector<int64_t> ids = drawn.to_host().to_vector<int64_t>();
    EXPECT_NE(ids, all);
    std::ranges::sort(ids);
    EXPECT_EQ(ids, all);
  }
}

TEST_F(DistributionsTest, AChannelIsDroppedAsAWhole) {
  const std::vector<float> values = feature_dropout(ones({20, 3, 4}), 0.5).to_host().to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], values[i / 4 * 4]) << i;
  EXPECT_EQ(std::ranges::count(values, 0.0f) + std::ranges::count(values, 2.0f), 240);
  EXPECT_GT(std::ranges::count(values, 0.0f), 0);
  EXPECT_GT(std::ranges::count(values, 2.0f), 0);
}

TEST_F(DistributionsTest, WrongCallsAreRefusedAtTheCall) {
  EXPECT_THROW(dtorch::normal(0, -1, {3}), UserError);
  EXPECT_THROW(uniform(2, 1, {3}), UserError);
  EXPECT_THROW(exponential(0, {3}), UserError);
  EXPECT_THROW(bernoulli(1.5, {3}), UserError);
  EXPECT_THROW(dtorch::normal(0, 1, {3}, {.dtype = kInt64}), DTypeError);
  EXPECT_THROW(multinomial(ones({3}), 4), ShapeError);
  EXPECT_THROW(multinomial(ones({1, 2, 3}), 1), ShapeError);
  EXPECT_THROW(categorical(ones({3}), ones({3})), UserError);
  EXPECT_THROW(gumbel_softmax(ones({3}), 0), UserError);
  EXPECT_THROW(linspace(0, 1, -1), UserError);
  EXPECT_THROW(randint_like(ones({3}), 3, 3), UserError);
}

}  // namespace
}  // namespace dtorch::test
