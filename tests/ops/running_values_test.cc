// Reductions, running values and orders over sharded dims: scenario_cases.md C06 (a) and C08, NaN and ties, empty
// parts, accuracy, and when they may combine.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "dtorch/dtorch.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using RunningValuesTest = KernelTest;

TEST_F(RunningValuesTest, ANormIsOfTheSumThatIsPending) {
  const Tensor p =
      from_local(cpu_mesh({2}), {Partial()},
                 [](int64_t device, Shape) {
                   return device == 0 ? HostTensor::of<float>({2}, {1, 3}) : HostTensor::of<float>({2}, {2, 1});
                 },
                 {2});
  EXPECT_EQ(norm(p).item<float>(), 5.0f);
  EXPECT_EQ(vector_norm(p, std::numeric_limits<double>::infinity()).item<float>(), 4.0f);
  EXPECT_EQ(var(p).item<float>(), 0.5f);
}

TEST_F(RunningValuesTest, TheFirstOfTheTopFourIsTheTop) {
  const HostTensor host = normal({2, 512}, kFloat32, 5);
  const auto [values, indices] = topk(from_host(host), 4, 1);
  const Tensor x = from_host(host, {.mesh = cpu_mesh({4}), .placements = {Shard(1)}});
  const auto [four, four_at] = topk(x, 4, 1);
  const auto [one, one_at] = topk(x, 1, 1);
  EXPECT_EQ(check_tensor(four, values.to_host(), 0), "");
  EXPECT_EQ(check_tensor(four_at, indices.to_host(), 0), "");
  EXPECT_EQ(difference(one.to_host(), slice(four, 1, 0, 1).to_host(), 0), "");
  EXPECT_EQ(difference(one_at.to_host(), slice(four_at, 1, 0, 1).to_host(), 0), "");
  EXPECT_EQ(difference(one_at.to_host(), argmax(x, 1, true).to_host(), 0), "");
}

TEST_F(RunningValuesTest, ARunningSumGoesOnOverThePartsOfTwoAxes) {
  const Tensor ones_of = ones({8, 1024}, {.dtype = kInt32});
  const Tensor want = cumsum(ones_of, 1);
  for (const Placements& placements : {Placements{Shard(0), Shard(1)}, Placements{Shard(1), Shard(1)}}) {
    const Tensor x = ones({8, 1024}, {.mesh = cpu_mesh({2, 2}), .placements = placements, .dtype = kInt32});
    const Tensor sums = cumsum(x, 1);
    EXPECT_EQ(sums.placements(), placements);
    EXPECT_EQ(check_tensor(sums, want.to_host(), 0), "");
  }
}

TEST_F(RunningValuesTest, TiesNanAndEmptyPartsAreAsOnOneDevice) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> rows = {{1, 5, 5, 5, 2, 5, 0},
                                                {-inf, -inf, -inf, -inf, -inf, -inf, -inf},
                                                {1, 2, nan, 9, nan, 3, 4},
                                                {inf, 6, nan, inf, -inf, 2, 1}};
  const std::vector<std::pair<const char*, std::function<std::pair<Tensor, Tensor>(const Tensor&)>>> calls = {
      {"topk", [](const Tensor& x) { return topk(x, 5, 1); }},
      {"smallest", [](const Tensor& x) { return topk(x, 7, 1, false); }},
      {"kthvalue", [](const Tensor& x) { return kthvalue(x, 6, 1); }},
      {"sort", [](const Tensor& x) { return sort(x, 1, true); }},
      {"cummax", [](const Tensor& x) { return cummax(x, 1); }},
      {"cummin", [](const Tensor& x) { return cummin(x, 1); }},
      {"nansum", [](const Tensor& x) { return std::pair(nansum(x, {1}), nanmean(x, {1})); }},
  };
  for (const std::vector<float>& row : rows) {
    for (size_t length : {size_t{7}, size_t{2}}) {
      const std::vector<float> some(row.begin(), row.begin() + static_cast<int64_t>(length));
      const HostTensor host = HostTensor::of<float>({1, static_cast<int64_t>(length)}, some);
      for (const auto& [name, call] : calls) {
        if (length < 7 && std::string(name) != "cummax" && std::string(name) != "cummin") continue;
        const auto [values, indices] = call(from_host(host));
        for (int64_t devices : {2, 3, 4}) {
          const auto [v, i] = call(from_host(host, {.mesh = cpu_mesh({devices}), .placements = {Shard(1)}}));
          EXPECT_EQ(check_tensor(v, values.to_host(), 0), "") << name << " on " << devices;
          EXPECT_EQ(check_tensor(i, indices.to_host(), 0), "") << name << " on " << devices;
        }
      }
    }
  }
}

TEST_F(RunningValuesTest, AVarianceFarFromZeroKeepsItsDigits) {
  std::vector<float> values;
  for (int i = 0; i < 101; ++i) values.push_back(100000.0f + 0.0625f * static_cast<float>(i % 7));
  const HostTensor host = HostTensor::of<float>({101}, values);
  const Tensor exact = var(to(from_host(host), kFloat64));
  const Tensor x = from_host(host, {.mesh = cpu_mesh({3}), .placements = {Shard(0)}});
  EXPECT_EQ(difference(to(var(x), kFloat64).to_host(), exact.to_host(), 1e-6), "");
}

TEST_F(RunningValuesTest, HalvesAreAddedUpInFloat32) {
  // 256 ones after 256: one by one in bfloat16 the sum would stay 256.
  std::vector<float> values(257, 1.0f);
  values[0] = 256;
  const HostTensor host = HostTensor::of<float>({257}, values).to(kBFloat16);
  const Tensor x = from_host(host, {.mesh = cpu_mesh({4}), .placements = {Shard(0)}});
  EXPECT_EQ(slice(cumsum(x, 0), 0, 256, 257).item<float>(), 512.0f);
  EXPECT_EQ(norm(x, 1).item<float>(), 512.0f);
  EXPECT_EQ(nansum(x).item<float>(), 512.0f);
}

TEST_F(RunningValuesTest, WithoutImplicitRedistributionTheyAreRefusedAndSayWhatToDo) {
  const HostTensor host = iota({5, 3});
  const Tensor rows = from_host(host, {.mesh = cpu_mesh({2}), .placements = {Shard(0)}});
  client().set_implicit_redistribution(false);
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> calls = {
      {"prod", [](const Tensor& x) { return prod(x, 0); }},
      {"any", [](const Tensor& x) { return any(x); }},
      {"all", [](const Tensor& x) { return all(x, {0}); }},
      {"aminmax", [](const Tensor& x) { return aminmax(x).first; }},
      {"var", [](const Tensor& x) { return var(x); }},
      {"std_mean", [](const Tensor& x) { return std_mean(x, {0}).second; }},
      {"vector_norm", [](const Tensor& x) { return norm(x); }},
      {"logsumexp", [](const Tensor& x) { return logsumexp(x, {0}); }},
      {"nansum", [](const Tensor& x) { return nansum(x); }},
      {"nanmean", [](const Tensor& x) { return nanmean(x); }},
      {"count_nonzero", [](const Tensor& x) { return count_nonzero(x); }},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 0); }},
      {"cummax", [](const Tensor& x) { return cummax(x, 0).second; }},
      {"diff", [](const Tensor& x) { return diff(x, 1, 0); }},
      {"sort", [](const Tensor& x) { return sort(x, 0).first; }},
      {"argsort", [](const Tensor& x) { return argsort(x, 0); }},
      {"topk", [](const Tensor& x) { return topk(x, 2, 0).first; }},
      {"kthvalue", [](const Tensor& x) { return kthvalue(x, 2, 0).first; }},
      {"histc", [](const Tensor& x) { return histc(x, 3); }},
  };
  for (const auto& [name, call] : calls) {
    try {
      call(rows);
      ADD_FAILURE() << name << " wasn't refused";
    } catch (const PlacementError& error) {
      EXPECT_EQ(error.op(), name);
      ASSERT_EQ(error.fix().size(), 1u) << name;
      const Tensor fixed = rows.redistribute(error.fix()[0].layout);
      EXPECT_EQ(check_tensor(call(fixed), call(from_host(host)).to_host()), "") << name;
    }
  }
  EXPECT_EQ(cumsum(rows, 1).placements(), Placements{Shard(0)}) << "what doesn't combine is legal";
}

TEST_F(RunningValuesTest, MistakesNameTheOperatorAndTheLine) {
  const Tensor x = ones({4, 3});
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"[topk]", [&] { topk(x, 4, 1); }},        {"[kthvalue]", [&] { kthvalue(x, 0); }},
      {"[cumsum]", [&] { cumsum(x, 2); }},       {"[sort]", [&] { sort(x, -3); }},
      {"[var]", [&] { var(to(x, kInt64)); }},    {"[vector_norm]", [&] { norm(to(x, kInt64)); }},
      {"[prod]", [&] { prod(x, 5); }},           {"[searchsorted]", [&] { searchsorted(x, ones({3})); }},
      {"[bincount]", [&] { bincount(x); }},      {"[histc]", [&] { histc(x, 0); }},
      {"[bucketize]", [&] { bucketize(x, x); }}, {"[diff]", [&] { diff(x, -1); }},
  };
  for (const auto& [name, call] : calls) {
    try {
      call();
      ADD_FAILURE() << name << " took it";
    } catch (const UserError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(name), std::string::npos) << text;
      EXPECT_NE(text.find("running_values_test.cc"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace dtorch::test
