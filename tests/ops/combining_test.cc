// Operators that combine across a sharded dim: the one-device result, ties and NaN included, and when they may.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "dtorch/dtorch.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using CombiningTest = KernelTest;

TEST_F(CombiningTest, TheIndexOfAMaximumIsTheFirstOverAllShards) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> rows = {{1, 5, 5, 5, 2, 5, 0},
                                                {-inf, -inf, -inf, -inf, -inf, -inf, -inf},
                                                {1, 2, nan, 9, nan, 3, 4},
                                                {7, 6, 5, 4, 3, 2, 1}};
  for (const std::vector<float>& row : rows) {
    const HostTensor host = HostTensor::of<float>({1, 7}, row);
    const Tensor one = from_host(host);
    const auto [values, indices] = max(one, 1);
    const auto [least, least_indices] = min(one, 1);
    for (int64_t devices : {2, 3, 4}) {
      const Tensor x = from_host(host, {.mesh = cpu_mesh({devices}), .placements = {Shard(1)}});
      const auto [v, i] = max(x, 1);
      const auto [w, j] = min(x, 1);
      EXPECT_EQ(check_tensor(v, values.to_host(), 0), "");
      EXPECT_EQ(check_tensor(i, indices.to_host(), 0), "");
      EXPECT_EQ(check_tensor(w, least.to_host(), 0), "");
      EXPECT_EQ(check_tensor(j, least_indices.to_host(), 0), "");
      EXPECT_EQ(argmax(x).item<int64_t>(), argmax(one).item<int64_t>());
      EXPECT_EQ(argmin(x).item<int64_t>(), argmin(one).item<int64_t>());
    }
  }
}

TEST_F(CombiningTest, EmptyPartsBetweenOthersDontWin) {
  // 2 rows over 2 x 2 devices: parts of 1, 0, 1, 0 rows.
  const DeviceMesh mesh = cpu_mesh({2, 2});
  const HostTensor host = HostTensor::of<int64_t>({2, 1}, {std::numeric_limits<int64_t>::lowest(), -7});
  const Tensor x = from_host(host, {.mesh = mesh, .placements = {Shard(0), Shard(0)}});
  const auto [values, indices] = max(x, 0);
  EXPECT_EQ(values.item<int64_t>(), -7);
  EXPECT_EQ(indices.item<int64_t>(), 1);
  EXPECT_EQ(amax(x, {0, 1}).item<int64_t>(), -7);
  EXPECT_EQ(argmin(x).item<int64_t>(), 0);
}

TEST_F(CombiningTest, TheFlatIndexCountsInTheGlobalTensor) {
  const HostTensor host = HostTensor::of<float>({3, 4}, {0, 1, 2, 3, 9, 4, 9, 5, 6, 9, 7, 8});
  const DeviceMesh mesh = cpu_mesh({2, 2});
  EXPECT_EQ(argmax(from_host(host, {.mesh = mesh, .placements = {Shard(0), Shard(1)}})).item<int64_t>(), 4);
  EXPECT_EQ(argmax(from_host(host, {.mesh = mesh, .placements = {Shard(1), Shard(1)}})).item<int64_t>(), 4);
}

TEST_F(CombiningTest, APendingSumStaysPending) {
  const HostTensor host = iota({5, 3});
  const Tensor x = from_host(host, {.mesh = cpu_mesh({2}), .placements = {Shard(0)}});
  const Tensor pending = sum_pending(x, {0});
  EXPECT_EQ(pending.placements(), Placements{Partial()});
  EXPECT_EQ(sum(x, {0}).placements(), Placements{Replicate()});
  EXPECT_EQ(difference(pending.to_host(), sum(from_host(host), {0}).to_host(), 1e-6), "");
}

TEST_F(CombiningTest, AMeanCountsGloballyHoweverUnevenTheShards) {
  const Tensor x = from_host(iota({7}, kFloat64), {.mesh = cpu_mesh({3}), .placements = {Shard(0)}});
  EXPECT_NEAR(mean(x).item<double>(), -1.5, 1e-15);
}

TEST_F(CombiningTest, WithoutImplicitRedistributionTheyAreRefusedAndSayWhatToDo) {
  const HostTensor host = iota({5, 3});
  const DeviceMesh mesh = cpu_mesh({2});
  const Tensor rows = from_host(host, {.mesh = mesh, .placements = {Shard(0)}});
  client().set_implicit_redistribution(false);
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> calls = {
      {"sum", [](const Tensor& x) { return sum(x, {0}); }},
      {"mean", [](const Tensor& x) { return mean(x); }},
      {"amax", [](const Tensor& x) { return amax(x, {0}); }},
      {"max", [](const Tensor& x) { return max(x, 0).first; }},
      {"argmax", [](const Tensor& x) { return argmax(x); }},
      {"slice", [](const Tensor& x) { return slice(x, 0, 1, 3); }},
      {"select", [](const Tensor& x) { return select(x, 0, 1); }},
      {"cat",
       [](const Tensor& x) {
         return cat({x, x}, 0);
       }},
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
  EXPECT_EQ(sum(rows, {1}).placements(), Placements{Shard(0)}) << "what doesn't combine is legal";
}

TEST_F(CombiningTest, BackwardCombinesWhateverTheSwitchSays) {
  Tensor x = from_host(iota({5, 3}), {.mesh = cpu_mesh({2}), .placements = {Shard(0)}, .requires_grad = true});
  const Tensor loss = sum(mul(x, x));
  client().set_implicit_redistribution(false);
  loss.backward();
  EXPECT_EQ(x.grad().placements(), Placements{Shard(0)});
  EXPECT_EQ(difference(x.grad().to_host(), mul(from_host(iota({5, 3})), 2).to_host(), 0), "");
}

TEST_F(CombiningTest, AnOverwrittenInputIsNeverOneThatSharesItsElements) {
  // The only handle of an expanded view goes into an operator that may reuse its input's memory.
  const auto plus_one = [] { return expand(full({1, 3}, 2.0), {4, 3}) + 1.0; };
  EXPECT_EQ(difference(plus_one().to_host(), HostTensor::full<float>({4, 3}, 3.0f), 0), "");
}

TEST_F(CombiningTest, ALookupInATableWhosePartHasRowsButNoColumns) {
  const DeviceMesh mesh = cpu_mesh({2, 2});
  const Tensor ids = from_host(HostTensor::of<int64_t>({3}, {4, 0, 2}), {.mesh = mesh});
  const HostTensor table = iota({5, 1});
  const HostTensor want = embedding(from_host(HostTensor::of<int64_t>({3}, {4, 0, 2})), from_host(table)).to_host();
  EXPECT_EQ(check_tensor(embedding(ids, distribute(table, mesh, {Shard(0), Shard(1)})), want), "");
}

TEST_F(CombiningTest, TheGradientOfAMinimumReadsAPendingInputOnce) {
  // Its two comparisons would each reduce what is pending, to shards of different dims.
  const DeviceMesh mesh = cpu_mesh({2, 2});
  const HostTensor value = iota({1, 2, 2}, kFloat64);
  Tensor one = from_host(value).requires_grad_();
  amin(one, {1}, true).reduced().sum().backward();
  Tensor x = distribute(value, mesh, {Replicate(), Partial(kMin)}).requires_grad_();
  amin(x, {1}, true).reduced().sum().backward();
  EXPECT_EQ(check_tensor(x.grad(), one.grad().to_host()), "");
}

TEST_F(CombiningTest, LossesAndLookupsOverASplitVocabularyCombineOnlyWhereThatIsAllowed) {
  const DeviceMesh mesh = cpu_mesh({2});
  const Tensor ids = from_host(HostTensor::of<int64_t>({3}, {4, 0, 2}), {.mesh = mesh});
  const Tensor weight = distribute(iota({5, 3}), mesh, {Shard(0)});
  const Tensor logits = distribute(iota({3, 5}), mesh, {Shard(1)});
  const Tensor rows = distribute(iota({4, 5}), mesh, {Shard(0)});
  const Tensor labels = from_host(HostTensor::of<int64_t>({4}, {1, 2, 3, 4}), {.mesh = mesh, .placements = {Shard(0)}});
  client().set_implicit_redistribution(false);
  const auto refused = [](const char* op, const Tensor& input, const std::function<void(const Tensor&)>& call) {
    try {
      call(input);
      ADD_FAILURE() << op << " combined without being allowed to";
    } catch (const PlacementError& error) {
      EXPECT_EQ(error.op(), op);
      ASSERT_EQ(error.fix().size(), 1u);
      call(input.redistribute(error.fix()[0].layout));
    }
  };
  refused("embedding", weight, [&](const Tensor& w) { embedding(ids, w); });
  refused("cross_entropy", logits, [&](const Tensor& x) { cross_entropy(x, ids); });
  refused("cross_entropy", logits, [&](const Tensor& x) { cross_entropy(x, ids, {.reduction = Reduction::kNone}); });
  refused("count_valid", labels, [&](const Tensor& t) { count_valid(t); });
  // A loss a row needs nothing of other devices; their mean does.
  cross_entropy(rows, labels, {.reduction = Reduction::kNone});
  EXPECT_THROW(cross_entropy(rows, labels), PlacementError);
}

}  // namespace
}  // namespace dtorch::test
