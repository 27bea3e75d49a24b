// set_implicit_redistribution(false): conversions (class (a)) and operators that combine by themselves (class (b)) are
// refused with what to redistribute; in backward both happen all the same.
#include "tests/errors/wrong_call.h"

namespace dtorch::test {
namespace {

class ImplicitOff : public WrongCallTest {
 protected:
  void SetUp() override {
    WrongCallTest::SetUp();
    if (!have_kernels()) GTEST_SKIP() << "this build has no kernels";
    client().set_implicit_redistribution(false);
  }
};
using Inputs = std::vector<Tensor>;

Inputs columns() { return {on_dp_tp({4, 8}, Replicate(), Shard(1))}; }

// --- (a)
TEST_F(ImplicitOff, NoOperandIsSliced) {
  const Inputs inputs = {on_two({4, 6}, Shard(0)), on_two({4, 6}, Replicate())};
  EXPECT_REFUSED("mul", "axis 0", inputs, in[0] * in[1]);
  const Inputs product = {on_two({4, 6}, Shard(1)), on_two({6, 2}, Replicate())};
  EXPECT_REFUSED("matmul", "axis 0", product, matmul(in[0], in[1]));
}
TEST_F(ImplicitOff, NoAddendIsMadePending) {
  const Inputs inputs = {on_two({4, 6}, Partial()), on_two({4, 6}, Replicate())};
  EXPECT_REFUSED("add", "axis 0", inputs, in[0] + in[1]);
}

// --- (b)
TEST_F(ImplicitOff, SumOverAShardedDim) { EXPECT_REFUSED("sum", "tp", columns(), sum(in[0], {1})); }
TEST_F(ImplicitOff, MeanOverAShardedDim) { EXPECT_REFUSED("mean", "tp", columns(), mean(in[0], {1})); }
TEST_F(ImplicitOff, ExtremesOverAShardedDim) {
  EXPECT_REFUSED("amax", "tp", columns(), amax(in[0], {1}));
  EXPECT_REFUSED("amin", "tp", columns(), amin(in[0], {1}));
  EXPECT_REFUSED("max", "tp", columns(), max(in[0], 1));
  EXPECT_REFUSED("argmax", "tp", columns(), argmax(in[0], 1));
}
TEST_F(ImplicitOff, SlicesOfAShardedDim) {
  EXPECT_REFUSED("slice", "tp", columns(), in[0].slice(1, 1, 7));
  EXPECT_REFUSED("select", "tp", columns(), in[0].select(1, 3));
}
TEST_F(ImplicitOff, ConcatenationOnAShardedDim) {
  const Inputs both = {columns()[0], columns()[0]};
  try {
    cat(both, 1);
    ADD_FAILURE() << "it was accepted";
  } catch (const PlacementError& error) {
    EXPECT_EQ(error.op(), "cat");
    EXPECT_EQ(error.axis(), "tp");
  }
}
TEST_F(ImplicitOff, CrossEntropyOverASplitVocabulary) {
  const Tensor targets = from_host(seq({4}), {.mesh = dp_tp()});
  const Tensor logits = columns()[0];
  try {
    cross_entropy(logits, targets);
    ADD_FAILURE() << "it was accepted";
  } catch (const PlacementError& error) {
    EXPECT_EQ(error.op(), "cross_entropy");
    EXPECT_EQ(error.axis(), "tp");
    ASSERT_EQ(error.fix().size(), 1u);
    EXPECT_NO_THROW(cross_entropy(logits.redistribute(error.fix()[0].layout), targets));
  }
}
TEST_F(ImplicitOff, EmbeddingOfASplitVocabulary) {
  const Tensor ids = from_host(seq({4}), {.mesh = dp_tp()});
  const Tensor weight = on_dp_tp({8, 3}, Replicate(), Shard(0));
  try {
    embedding(ids, weight);
    ADD_FAILURE() << "it was accepted";
  } catch (const PlacementError& error) {
    EXPECT_EQ(error.op(), "embedding");
    EXPECT_EQ(error.axis(), "tp");
  }
}
TEST_F(ImplicitOff, ReadsOfAPendingSum) {
  const Tensor p = on_two({1}, Partial());
  for (const bool item : {false, true}) {
    try {
      if (item)
        p.item<float>();
      else
        p.to_host();
      ADD_FAILURE() << "it was accepted";
    } catch (const PlacementError& error) {
      EXPECT_EQ(error.axis(), "axis 0");
      EXPECT_NE(error.suggestion().find("redistribute({Replicate()})"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(p.redistribute({Replicate()}).item<float>(), -3);
}

// --- what stays legal
TEST_F(ImplicitOff, WhatNeedsNoConversionRuns) {
  const Tensor x = on_dp_tp({4, 8}, Shard(0), Shard(1));
  EXPECT_EQ((x + x).placements(), x.placements());
  EXPECT_EQ(sum_pending(x, {1}).placements(), (Placements{Shard(0), Partial()}));
  EXPECT_EQ(relu(x).to_host().num_elements(), 32);
  const Tensor rows = columns()[0].slice(0, 1, 3);
  EXPECT_EQ(rows.placements(), columns()[0].placements());
}

TEST_F(ImplicitOff, BackwardConvertsAndCombinesAllTheSame) {
  const auto gradient = [](bool implicit) {
    client().set_implicit_redistribution(implicit);
    Tensor w = on_dp_tp({8, 6}, Shard(0), Replicate()).requires_grad_();
    const Tensor x = on_dp_tp({4, 8}, Replicate(), Shard(0));
    // The gradient of w is pending over tp and is reduced; b's is summed over what tp splits.
    Tensor b = on_dp_tp({6}, Replicate(), Replicate()).requires_grad_();
    const Tensor h = matmul(x.redistribute({Shard(1), Shard(0)}), w.redistribute({Shard(0), Replicate()}));
    const Tensor y = h.redistribute({Replicate(), Shard(0)}) + b;
    sum_pending(y, {0, 1}).redistribute({Replicate(), Replicate()}).backward();
    EXPECT_EQ(w.grad().placements(), w.placements());
    EXPECT_EQ(b.grad().placements(), b.placements());
    client().set_implicit_redistribution(true);
    return std::make_pair(w.grad().to_host(), b.grad().to_host());
  };
  const auto with = gradient(true);
  const auto without = gradient(false);
  EXPECT_TRUE(with.first.equals(without.first));
  EXPECT_TRUE(with.second.equals(without.second));
}

}  // namespace
}  // namespace dtorch::test
