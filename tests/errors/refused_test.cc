// Placements that an operator refuses: one tiny program for each. Every one checks all fields of the PlacementError,
// executes its suggestion, and runs C01 afterwards.
#include "tests/errors/wrong_call.h"

namespace dtorch::test {
namespace {

using Refused = WrongCallTest;
using Inputs = std::vector<Tensor>;

Inputs pending() { return {on_dp_tp({4, 8}, Replicate(), Partial())}; }

// --- a pending sum into an operator that isn't linear
TEST_F(Refused, ReluOfAPendingSum) { EXPECT_REFUSED("relu", "tp", pending(), relu(in[0])); }
TEST_F(Refused, ExpOfAPendingSum) { EXPECT_REFUSED("exp", "tp", pending(), exp(in[0])); }
TEST_F(Refused, TanhOfAPendingSum) { EXPECT_REFUSED("tanh", "tp", pending(), tanh(in[0])); }
TEST_F(Refused, SigmoidOfAPendingSum) { EXPECT_REFUSED("sigmoid", "tp", pending(), sigmoid(in[0])); }
TEST_F(Refused, GeluOfAPendingSum) { EXPECT_REFUSED("gelu", "tp", pending(), gelu(in[0])); }
TEST_F(Refused, SiluOfAPendingSum) { EXPECT_REFUSED("silu", "tp", pending(), silu(in[0])); }
TEST_F(Refused, AbsOfAPendingSum) { EXPECT_REFUSED("abs", "tp", pending(), abs(in[0])); }
TEST_F(Refused, SquareOfAPendingSum) { EXPECT_REFUSED("square", "tp", pending(), square(in[0])); }
TEST_F(Refused, SinOfAPendingSum) { EXPECT_REFUSED("sin", "tp", pending(), sin(in[0])); }
TEST_F(Refused, SignOfAPendingSum) { EXPECT_REFUSED("sign", "tp", pending(), sign(in[0])); }
TEST_F(Refused, ClampOfAPendingSum) { EXPECT_REFUSED("clamp", "tp", pending(), clamp(in[0], -1, 2)); }
TEST_F(Refused, PowOfAPendingSum) { EXPECT_REFUSED("pow", "tp", pending(), pow(in[0], 2)); }
TEST_F(Refused, ComparisonOfAPendingSum) { EXPECT_REFUSED("gt", "tp", pending(), in[0] > 0); }
TEST_F(Refused, EqualityOfAPendingSum) { EXPECT_REFUSED("eq", "tp", pending(), in[0] == 1.0); }
TEST_F(Refused, APendingSumPlusANumber) { EXPECT_REFUSED("add", "tp", pending(), in[0] + 1.0); }
TEST_F(Refused, ANumberMinusAPendingSum) { EXPECT_REFUSED("sub", "tp", pending(), 1.0 - in[0]); }
TEST_F(Refused, AProductOfTwoPendingSums) {
  const Inputs both = {pending()[0], pending()[0]};
  EXPECT_REFUSED("mul", "tp", both, in[0] * in[1]);
}
TEST_F(Refused, MaximumOfTwoPendingSums) {
  const Inputs both = {pending()[0], pending()[0]};
  EXPECT_REFUSED("maximum", "tp", both, maximum(in[0], in[1]));
}
TEST_F(Refused, DivisionByAPendingSum) {
  const Inputs both = {on_dp_tp({4, 8}, Replicate(), Replicate()), on_dp_tp({4, 8}, Replicate(), Partial())};
  EXPECT_REFUSED("div", "tp", both, in[0] / in[1]);
}
TEST_F(Refused, SoftmaxOfAPendingSum) { EXPECT_REFUSED("softmax", "tp", pending(), softmax(in[0], -1)); }

// --- a shard that the operator needs whole
TEST_F(Refused, SoftmaxOverAShardedDim) {
  EXPECT_REFUSED("softmax", "tp", Inputs{on_dp_tp({4, 8}, Shard(0), Shard(1))}, softmax(in[0], -1));
}
TEST_F(Refused, LogSoftmaxOverAShardedDim) {
  EXPECT_REFUSED("log_softmax", "dp", Inputs{on_dp_tp({5, 8}, Shard(0), Replicate())}, log_softmax(in[0], 0));
}
TEST_F(Refused, LayerNormOverAShardedDim) {
  const Tensor one_each = on_dp_tp({8}, Replicate(), Replicate());
  const Inputs inputs = {on_dp_tp({5, 8}, Shard(1), Replicate()), one_each, one_each};
  EXPECT_REFUSED("layer_norm", "dp", inputs, layer_norm(in[0], {8}, in[1], in[2]));
}
TEST_F(Refused, RmsNormOverAShardedDim) {
  const Inputs inputs = {on_dp_tp({5, 8}, Replicate(), Shard(1)), on_dp_tp({8}, Replicate(), Replicate())};
  EXPECT_REFUSED("rms_norm", "tp", inputs, rms_norm(in[0], in[1]));
}
TEST_F(Refused, ChunkOfAShardedDim) {
  EXPECT_REFUSED("chunk", "axis 0", Inputs{on_two({4, 8}, Shard(1))}, chunk(in[0], 2, 1));
}
TEST_F(Refused, SplitOfAShardedDim) {
  EXPECT_REFUSED("split", "dp", Inputs{on_dp_tp({5, 8}, Shard(0), Shard(1))}, split(in[0], {2, 3}, 0));
}
TEST_F(Refused, RotaryEmbeddingOverAShardedHeadDim) {
  EXPECT_REFUSED("rotary_embedding", "axis 0", Inputs{on_two({1, 2, 3, 4}, Shard(3))}, rotary_embedding(in[0]));
}
TEST_F(Refused, AttentionOverAShardedHeadDim) {
  const Tensor x = on_two({2, 2, 3, 4}, Shard(3));
  const Inputs inputs = {x, x, x};
  EXPECT_REFUSED("scaled_dot_product_attention", "axis 0", inputs, scaled_dot_product_attention(in[0], in[1], in[2]));
}

// --- views that cut a shard
TEST_F(Refused, AReshapeThatCutsAShard) {
  EXPECT_REFUSED("reshape", "axis 0", Inputs{on_two({2, 16, 6}, Shard(2))}, reshape(in[0], {2, 16, 3, 2}));
}
TEST_F(Refused, AFlattenThatMixesShards) {
  EXPECT_REFUSED("reshape", "axis 0", Inputs{on_two({4, 6}, Shard(1))}, flatten(in[0]));
}
TEST_F(Refused, AnExpandOfAShardedDim) {
  EXPECT_REFUSED("expand", "axis 0", Inputs{on_two({1, 3}, Shard(0))}, expand(in[0], {4, 3}));
}

// --- operands that don't pair
TEST_F(Refused, AddOfDifferentShards) {
  const Inputs inputs = {on_two({4, 6}, Shard(0)), on_two({4, 6}, Shard(1))};
  EXPECT_REFUSED("add", "axis 0", inputs, in[0] + in[1]);
}
TEST_F(Refused, MinimumOfDifferentShards) {
  const Inputs inputs = {on_dp_tp({4, 6}, Replicate(), Shard(0)), on_dp_tp({4, 6}, Replicate(), Shard(1))};
  EXPECT_REFUSED("minimum", "tp", inputs, minimum(in[0], in[1]));
}
TEST_F(Refused, APendingSumPlusAShard) {
  const Inputs inputs = {on_dp_tp({4, 6}, Replicate(), Partial()), on_dp_tp({4, 6}, Replicate(), Shard(0))};
  EXPECT_REFUSED("add", "tp", inputs, in[0] + in[1]);
}
TEST_F(Refused, MatmulOfKAgainstN) {
  const Inputs inputs = {on_two({4, 5}, Shard(1)), on_two({5, 8}, Shard(1))};
  EXPECT_REFUSED("matmul", "axis 0", inputs, matmul(in[0], in[1]));
}
TEST_F(Refused, LinearOfInFeaturesAgainstOutFeatures) {
  const Inputs inputs = {on_dp_tp({3, 8}, Shard(0), Shard(1)), on_dp_tp({4, 8}, Replicate(), Shard(0))};
  EXPECT_REFUSED("linear", "tp", inputs, linear(in[0], in[1]));
}
TEST_F(Refused, EinsumOfLettersThatDontPair) {
  const Inputs inputs = {on_two({3, 4, 5}, Shard(1)), on_two({2, 6, 5}, Shard(2))};
  EXPECT_REFUSED("einsum", "axis 0", inputs, einsum("btd,hkd->bhtk", in[0], in[1]));
}
TEST_F(Refused, WhereWithShardsThatDontPair) {
  const Tensor condition = from_host(iota({4, 6}).to(kBool), {.mesh = cpu_mesh({2}), .placements = {Shard(0)}});
  const Inputs inputs = {condition, on_two({4, 6}, Shard(1)), on_two({4, 6}, Shard(1))};
  EXPECT_REFUSED("where", "axis 0", inputs, where(in[0], in[1], in[2]));
}
TEST_F(Refused, EmbeddingOfShardedIdsAndShardedColumns) {
  const Tensor ids = from_host(seq({4}), {.mesh = cpu_mesh({2}), .placements = {Shard(0)}});
  const Inputs inputs = {ids, on_two({6, 4}, Shard(1))};
  EXPECT_REFUSED("embedding", "axis 0", inputs, embedding(in[0], in[1]));
}
TEST_F(Refused, ConcatenationOfDifferentShards) {
  const Inputs inputs = {on_two({4, 6, 2}, Shard(0)), on_two({4, 6, 2}, Shard(1))};
  EXPECT_REFUSED("cat", "axis 0", inputs, cat({in[0], in[1]}, 2));
}

// --- the same placements in another order
TEST_F(Refused, AddOfTheSameShardsInAnotherOrderPrintsBothOrders) {
  const Tensor plain = distribute(iota({10, 3}), dp_tp(), {Shard(0), Shard(0)});
  const Tensor swapped =
      distribute(iota({10, 3}), Layout(dp_tp(), {Shard(0), Shard(0)}, 2, std::vector<std::string>{"tp", "dp"}));
  ASSERT_FALSE(plain.layout() == swapped.layout());
  const Inputs inputs = {plain, swapped};
  EXPECT_REFUSED("add", "", inputs, in[0] + in[1]);
  try {
    plain + swapped;
  } catch (const PlacementError& error) {
    EXPECT_NE(std::string(error.what()).find("{dp, tp}"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("{tp, dp}"), std::string::npos) << error.what();
  }
}
TEST_F(Refused, MatmulOfBlocksInAnotherOrder) {
  const Tensor a = distribute(iota({4, 4}), dp_tp(), {Shard(1), Shard(1)});
  const Tensor b =
      distribute(iota({4, 4}), Layout(dp_tp(), {Shard(0), Shard(0)}, 2, std::vector<std::string>{"tp", "dp"}));
  const Inputs inputs = {a, b};
  EXPECT_REFUSED("matmul", "", inputs, matmul(in[0], in[1]));
}

TEST_F(Refused, SoftmaxOverADimThatBothAxesShardInAnotherOrder) {
  const Layout swapped(dp_tp(), {Shard(1), Shard(1)}, 2, std::vector<std::string>{"tp", "dp"});
  const Inputs inputs = {distribute(iota({4, 8}), swapped)};
  EXPECT_REFUSED("softmax", "dp", inputs, softmax(in[0], -1));
  try {
    softmax(inputs[0], -1);
  } catch (const PlacementError& error) {
    EXPECT_NE(std::string(error.what()).find("{Shard(1), Shard(1)}, order {tp, dp} on cpu mesh (dp=2, tp=2)"),
              std::string::npos)
        << error.what();
  }
}
TEST_F(Refused, OperandsThatFailOnTwoAxes) {
  const Inputs inputs = {on_dp_tp({4, 8}, Shard(0), Shard(1)), on_dp_tp({4, 8}, Shard(1), Partial())};
  EXPECT_REFUSED("add", "dp", inputs, in[0] + in[1]);
}

// --- what the message lists
TEST_F(Refused, AViewListsTheRowsThatAreLegalOnOneAxis) {
  try {
    reshape(on_dp_tp({2, 16, 6}, Replicate(), Shard(2)), {2, 16, 3, 2});
    FAIL() << "it was accepted";
  } catch (const PlacementError& error) {
    EXPECT_EQ(error.legal_rows(),
              (std::vector<std::string>{"(Replicate()) -> (Replicate())", "(Shard(0)) -> (Shard(0))",
                                        "(Shard(1)) -> (Shard(1))", "(Partial(sum)) -> (Partial(sum))"}));
    EXPECT_NE(error.reason().find("axis tp"), std::string::npos) << error.what();
    EXPECT_EQ(error.axis(), "tp");
  }
}
TEST_F(Refused, NoOperatorIsCalledByAnInternalName) {
  const OperatorRegistry& registry = OperatorRegistry::global();
  for (uint16_t index = 0; index < registry.size(); ++index) {
    const std::string called = registry.at(index).called();
    EXPECT_EQ(called.find("_number"), std::string::npos) << called;
    EXPECT_FALSE(called.empty());
  }
  EXPECT_STREQ(registry.find("mul_number")->called(), "mul");
  EXPECT_STREQ(registry.find("arg_candidates")->called(), "max/min/argmax/argmin");
  for (const char* internal :
       {"arg_combine", "scan_totals", "extreme_totals", "halo_edges", "halo_windows", "norm_sums", "norm_apply",
        "nll_total", "cross_entropy_pick", "cross_entropy_rows", "add_gumbel", "squared_deviations",
        "topk_of_candidates", "ring_attention_step", "contract_leading"}) {
    EXPECT_STRNE(registry.find(internal)->called(), internal);
  }
  EXPECT_STREQ(registry.find("redistribute")->called(), "redistribute");
}

// --- without conversions
TEST_F(Refused, ASliceOfAReplicateOperandWhenConversionsAreOff) {
  client().set_implicit_redistribution(false);
  const Inputs inputs = {on_two({4, 6}, Shard(0)), on_two({4, 6}, Replicate())};
  EXPECT_REFUSED("add", "axis 0", inputs, in[0] + in[1]);
}

}  // namespace
}  // namespace dtorch::test
