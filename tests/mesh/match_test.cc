// Matching: which conversions are made, what the outputs become, orders of axes, and what a refusal says.
#include <gtest/gtest.h>

#include "mesh/signature.h"

namespace dtorch {
namespace {

class Matching : public ::testing::Test {
 protected:
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const DeviceMesh line = init_device_mesh("cpu", {2}, {"tp"});

  static const TensorMeta* meta(const Shape& shape, const Layout& layout) {
    return intern_meta(shape, kFloat32, layout);
  }
  const TensorMeta* square(const Shape& shape, const Placements& placements, const AxisList& order = {}) const {
    return meta(shape, Layout(mesh, placements, shape.ndim(), order));
  }
  const TensorMeta* flat(const Shape& shape, const Placement& placement) const {
    return meta(shape, Layout(line, {placement}, shape.ndim()));
  }
  static MatchResult match(const Rule& rule, const std::vector<const TensorMeta*>& inputs,
                           ConversionPolicy policy = ConversionPolicy::kLocal) {
    std::vector<int64_t> ndims;
    for (const Letters& letters : rule.output_letters) ndims.push_back(letters.size());
    return match_rule(rule, inputs, ndims, policy);
  }
  static Rule elementwise(const std::vector<const TensorMeta*>& inputs, Linear linear) {
    std::vector<Shape> shapes;
    Shape output;
    for (const TensorMeta* input : inputs) {
      shapes.push_back(input->global_shape);
      output = broadcast_shapes(output, input->global_shape, "test");
    }
    return elementwise_rule(shapes, output, linear);
  }
  static MatchResult add(const TensorMeta* a, const TensorMeta* b, ConversionPolicy policy = ConversionPolicy::kLocal) {
    return match(elementwise({a, b}, Linear::kInAll), {a, b}, policy);
  }
};

TEST_F(Matching, SlicesAReplicatedOperandLocally) {
  const MatchResult result = add(square({3, 4, 5}, {Shard(1), Shard(1)}), square({4, 1}, {Replicate(), Replicate()}));
  ASSERT_TRUE(result.match);
  EXPECT_EQ(result.match->output_layouts[0].placements(), (Placements{Shard(1), Shard(1)}));
  ASSERT_EQ(result.match->conversions.size(), 1u);
  EXPECT_EQ(result.match->conversions[0].input, 1);
  EXPECT_EQ(result.match->conversions[0].layout.placements(), (Placements{Shard(0), Shard(0)}));
}

TEST_F(Matching, LeavesBroadcastDimsReplicated) {
  const MatchResult result = add(flat({3, 4}, Shard(0)), flat({1, 4}, Replicate()));
  ASSERT_TRUE(result.match);
  EXPECT_TRUE(result.match->conversions.empty());
  EXPECT_FALSE(add(flat({3, 4}, Replicate()), flat({1, 4}, Shard(0))).match);
}

TEST_F(Matching, KeepsAReplicatedAddendOnOneOwner) {
  const MatchResult result = add(flat({4, 6}, Partial()), flat({6}, Replicate()));
  ASSERT_TRUE(result.match);
  EXPECT_EQ(result.match->output_layouts[0].placement(0), Partial());
  ASSERT_EQ(result.match->conversions.size(), 1u);
  EXPECT_EQ(result.match->conversions[0].layout.placement(0), Partial());
}

TEST_F(Matching, NeverMixesKindsOfPartial) {
  EXPECT_TRUE(add(flat({4}, Partial(kAvg)), flat({4}, Partial(kAvg))).match);
  EXPECT_FALSE(add(flat({4}, Partial(kAvg)), flat({4}, Partial(kSum))).match);
  EXPECT_FALSE(add(flat({4}, Partial(kMax)), flat({4}, Partial(kMax))).match);
  const int64_t perm[] = {0};
  EXPECT_TRUE(match(permute_rule(perm), {flat({4}, Partial(kMax))}).match);
}

TEST_F(Matching, RefusesPartialWhereTheOperatorIsNotLinear) {
  const TensorMeta* p = flat({4, 8}, Partial());
  const MatchResult result = match(elementwise({p}, Linear::kNo), {p});
  ASSERT_FALSE(result.match);
  EXPECT_EQ(result.failure.axis, 0);
  EXPECT_EQ(result.failure.reason, "no row accepts (Partial(sum)) on mesh axis tp");
  ASSERT_EQ(result.failure.fix.size(), 1u);
  EXPECT_EQ(result.failure.fix[0].layout.placement(0), Shard(0));  // a reduce-scatter moves half of an all-reduce
  // A product of two pending sums isn't the sum of products.
  EXPECT_FALSE(match(elementwise({p, p}, Linear::kInEach), {p, p}).match);
  EXPECT_FALSE(match(elementwise({p, p}, Linear::kInFirst), {flat({4, 8}, Replicate()), p}).match);
}

TEST_F(Matching, NamesAxisRowsAndTheCheapestFixOfAMismatch) {
  const MatchResult result = add(flat({4, 6}, Shard(0)), flat({4, 6}, Shard(1)));
  ASSERT_FALSE(result.match);
  EXPECT_EQ(result.failure.reason, "no row accepts (Shard(0), Shard(1)) on mesh axis tp");
  EXPECT_EQ(result.failure.legal_rows.size(), 5u);
  EXPECT_EQ(result.failure.legal_rows[1], "(Shard(0), Shard(0)) -> (Shard(0))");
  ASSERT_EQ(result.failure.fix.size(), 1u);  // one all-to-all
  EXPECT_TRUE(result.failure.fix[0].layout.placement(0).is_shard());
}

TEST_F(Matching, PrefersTheSmallerOperandInAFix) {
  const MatchResult result = match(einsum_rule("mk,kn->mn"), {flat({64, 32}, Shard(1)), flat({32, 4}, Shard(1))});
  ASSERT_FALSE(result.match);
  ASSERT_EQ(result.failure.fix.size(), 1u);
  EXPECT_EQ(result.failure.fix[0].input, 1);
  EXPECT_EQ(result.failure.fix[0].layout.placement(0), Shard(0));
}

TEST_F(Matching, RedistributesSeveralInputsWhenOneIsNotEnough) {
  const TensorMeta* p = flat({4, 8}, Partial(kMax));
  const MatchResult result = match(elementwise({p, p}, Linear::kInEach), {p, p});
  ASSERT_FALSE(result.match);
  EXPECT_EQ(result.failure.fix.size(), 2u);
}

TEST_F(Matching, TakesTheFirstListedOfRowsThatConvertEquallyFew) {
  Rule rule;
  rule.input_letters = {{1, 2}, {}};
  rule.output_letters = {{1, 2}};
  rule.rows = {{{Replicate(), Replicate()}, {Replicate()}},
               {{Shard(0), Partial()}, {Partial()}},
               {{Shard(0), Partial(kAvg)}, {Partial(kAvg)}}};
  const MatchResult result = match(rule, {flat({4, 4}, Shard(0)), flat({}, Replicate())});
  EXPECT_EQ(result.match.value().output_layouts[0].placement(0), Partial());
  // A row that converts fewer comes before one that is listed earlier.
  rule.rows.push_back({{Shard(0), Replicate()}, {Partial(kMax)}});
  const MatchResult fewer = match(rule, {flat({4, 4}, Shard(0)), flat({}, Replicate())});
  EXPECT_EQ(fewer.match.value().output_layouts[0].placement(0), Partial(kMax));
}

TEST_F(Matching, LeavesOutOfAFixWhatIsConvertedAnyway) {
  // Both factors must be reduced; the third is sliced by the match itself.
  const TensorMeta* p = flat({4, 8}, Partial(kMax));
  const MatchResult result = match(elementwise({p, p, p}, Linear::kNo), {p, p, flat({4, 8}, Replicate())});
  ASSERT_EQ(result.failure.fix.size(), 2u);
  EXPECT_EQ(result.failure.fix[0].layout.placement(0), Shard(0));
  EXPECT_EQ(result.failure.fix[1].input, 1);
}

TEST_F(Matching, FollowsMatmulsFormula) {
  const Rule rule = einsum_rule("mk,kn->mn");
  const MatchResult contracted = match(rule, {flat({4, 9}, Shard(1)), flat({9, 6}, Shard(0))});
  EXPECT_EQ(contracted.match.value().output_layouts[0].placement(0), Partial());
  const MatchResult both =
      match(rule, {square({4, 8}, {Shard(0), Replicate()}), square({8, 6}, {Replicate(), Shard(1)})});
  EXPECT_EQ(both.match.value().output_layouts[0].placements(), (Placements{Shard(0), Shard(1)}));
  EXPECT_TRUE(both.match->conversions.empty());
  const MatchResult sliced = match(rule, {flat({5, 8}, Replicate()), flat({8, 6}, Shard(0))});
  EXPECT_EQ(sliced.match.value().conversions[0].layout.placement(0), Shard(1));
}

TEST_F(Matching, RefusesOperandsInDifferentOrdersAndPrintsBoth) {
  const TensorMeta* a = square({10, 3}, {Shard(0), Shard(0)});
  const TensorMeta* b = square({10, 3}, {Shard(0), Shard(0)}, {1, 0});
  const MatchResult result = add(a, b);
  ASSERT_FALSE(result.match);
  EXPECT_EQ(result.failure.axis, -1);
  EXPECT_EQ(
      result.failure.reason,
      "dim 0 of input 0 is split by the axes {dp, tp} and dim 0 of input 1 by {tp, dp}, outermost first; both must be "
      "split by the same axes in the same order");
  ASSERT_EQ(result.failure.fix.size(), 1u);
  EXPECT_TRUE(add(b, b).match);
  EXPECT_EQ(add(b, b).match->output_layouts[0], b->layout);
}

TEST_F(Matching, RefusesMatmulOfBlocksInSwappedOrder) {
  const Rule rule = einsum_rule("mk,kn->mn");
  const TensorMeta* a = square({4, 4}, {Shard(1), Shard(1)});
  const MatchResult result = match(rule, {a, square({4, 4}, {Shard(0), Shard(0)}, {1, 0})});
  ASSERT_FALSE(result.match);
  EXPECT_EQ(result.failure.axis, -1);
  EXPECT_TRUE(match(rule, {a, square({4, 4}, {Shard(0), Shard(0)})}).match);
}

TEST_F(Matching, SlicesAReplicaInTheOrderOfTheOtherOperand) {
  const TensorMeta* a = square({10, 3}, {Shard(0), Shard(0)}, {1, 0});
  const MatchResult result = add(a, square({10, 1}, {Replicate(), Replicate()}));
  ASSERT_TRUE(result.match);
  EXPECT_EQ(result.match->conversions[0].layout.order_str(), "{tp, dp}");
  EXPECT_EQ(result.match->output_layouts[0].order_str(), "{tp, dp}");
  // Half sliced already: dp may come inside tp, but not outside it.
  EXPECT_TRUE(add(a, square({10, 1}, {Replicate(), Shard(0)})).match);
  EXPECT_FALSE(add(a, square({10, 1}, {Shard(0), Replicate()})).match);
}

TEST_F(Matching, RefusesWhenEachOperandWouldNestTheOthersAxisInside) {
  const MatchResult result = add(square({8}, {Shard(0), Replicate()}), square({8}, {Replicate(), Shard(0)}));
  ASSERT_FALSE(result.match);
  EXPECT_EQ(result.failure.axis, -1);
  EXPECT_EQ(result.failure.fix.size(), 1u);
}

TEST_F(Matching, PassesOrdersThroughPermutations) {
  const int64_t perm[] = {1, 0};
  const MatchResult result = match(permute_rule(perm), {square({10, 3}, {Shard(0), Shard(0)}, {1, 0})});
  EXPECT_EQ(result.match.value().output_layouts[0].str(), "{Shard(1), Shard(1)}, order {tp, dp}");
}

TEST_F(Matching, MakesNoConversionWhenNoneIsAllowed) {
  const TensorMeta* a = flat({4}, Shard(0));
  const TensorMeta* b = flat({4}, Replicate());
  EXPECT_TRUE(add(a, b).match);
  const MatchResult result = add(a, b, ConversionPolicy::kNone);
  ASSERT_FALSE(result.match);
  ASSERT_EQ(result.failure.fix.size(), 1u);
  EXPECT_EQ(result.failure.fix[0], (Conversion{1, a->layout}));
}

TEST_F(Matching, ReducesPendingSumsOnlyInBackward) {
  const TensorMeta* p = flat({4, 8}, Partial());
  const Rule rule = elementwise({p, p}, Linear::kInEach);
  EXPECT_FALSE(match(rule, {p, p}).match);
  const MatchResult scattered = match(rule, {p, flat({4, 8}, Shard(1))}, ConversionPolicy::kReduce);
  EXPECT_EQ(scattered.match.value().conversions[0].layout.placement(0), Shard(1));
  // Of two pending factors one is enough.
  EXPECT_EQ(match(rule, {p, p}, ConversionPolicy::kReduce).match.value().conversions.size(), 1u);
  // What passes as it is isn't reduced.
  EXPECT_TRUE(match(rule, {p, flat({4, 8}, Replicate())}, ConversionPolicy::kReduce).match->conversions.empty());
  // Nothing else moves.
  EXPECT_FALSE(match(rule, {flat({4, 8}, Shard(0)), flat({4, 8}, Shard(1))}, ConversionPolicy::kReduce).match);
}

TEST_F(Matching, ReducesToReplicateWhereNoDimIsWorthSplitting) {
  const TensorMeta* scalar = flat({}, Partial());
  const MatchResult result = match(elementwise({scalar}, Linear::kNo), {scalar}, ConversionPolicy::kReduce);
  EXPECT_TRUE(result.match.value().output_layouts[0].is_replicated());
}

TEST_F(Matching, TakesAllReplicateForGranted) {
  Rule rule;
  rule.input_letters = {{1}};
  rule.output_letters = {{1}};
  EXPECT_TRUE(match(rule, {flat({4}, Replicate())}).match);
  EXPECT_EQ(match(rule, {flat({4}, Shard(0))}).failure.fix.at(0).layout.placement(0), Replicate());
}

TEST_F(Matching, IgnoresAxesOfSizeOne) {
  const DeviceMesh ones = init_device_mesh("cpu", {1, 2});
  const TensorMeta* a = meta({4}, Layout(ones, {Partial(kMax), Shard(0)}, 1));
  EXPECT_TRUE(match(elementwise({a}, Linear::kNo), {a}).match);
}

TEST_F(Matching, ShowsAtMostTwelveRowsOnce) {
  const Shape wide{1, 2, 3, 4, 5, 6, 7, 8};
  const TensorMeta* a = flat(wide, Partial(kMin));
  const MatchResult result = match(elementwise({a, a, a}, Linear::kInEach), {a, a, a});
  ASSERT_FALSE(result.match);
  EXPECT_EQ(result.failure.legal_rows.size(), 12u);
  EXPECT_EQ(result.failure.legal_rows.back(), "and 4 more");
}

TEST_F(Matching, MapsAReductionsDims) {
  const int64_t dims[] = {1};
  const Rule sum = reduce_rule(3, dims, false, kSum, Linear::kInAll);
  EXPECT_EQ(match(sum, {flat({5, 4, 8}, Shard(2))}).match.value().output_layouts[0].placement(0), Shard(1));
  EXPECT_EQ(match(sum, {flat({5, 4, 8}, Shard(1))}).match.value().output_layouts[0].placement(0), Partial());
  const Rule kept = reduce_rule(3, dims, true, std::nullopt, Linear::kNo);
  EXPECT_EQ(match(kept, {flat({5, 4, 8}, Shard(2))}).match.value().output_layouts[0].placement(0), Shard(2));
  EXPECT_FALSE(match(kept, {flat({5, 4, 8}, Shard(1))}).match);
}

}  // namespace
}  // namespace dtorch
