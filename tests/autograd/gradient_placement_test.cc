// Placements of gradients: what stays pending, and when data moves.
#include "tests/autograd/autograd_test.h"

namespace dtorch::testing {
namespace {

using GradientPlacementTest = AutogradTest;

TEST_F(GradientPlacementTest, AReplicatedWeightsGradientStaysPendingUntilItIsRead) {
  Tensor x = constant({4, 6}, {Shard(0), Replicate()}), w = leaf({6, 8}, {Replicate(), Replicate()});
  Tensor loss = sum(matmul(x, w));
  const size_t before = transfers().size();
  loss.backward();
  EXPECT_EQ(pending_grad(w).placements(), (Placements{Partial(), Replicate()}));
  EXPECT_EQ(transfers().size(), before);
  EXPECT_EQ(w.grad().layout(), w.layout());
  EXPECT_EQ(transfers().size(), before + 1);
  // Reduced once and for all.
  EXPECT_EQ(pending_grad(w).layout(), w.layout());
  w.grad();
  EXPECT_EQ(transfers().size(), before + 1);
}

TEST_F(GradientPlacementTest, PendingGradientsAreAddedBeforeTheyAreReduced) {
  Tensor x = constant({4, 6}, {Shard(0), Replicate()}), w = leaf({6, 8}, {Replicate(), Replicate()});
  for (int i = 0; i < 3; ++i) sum(matmul(x, w)).backward();
  EXPECT_EQ(pending_grad(w).placements(), (Placements{Partial(), Replicate()}));
  const size_t before = transfers().size();
  w.grad();
  EXPECT_EQ(transfers().size(), before + 1);
}

TEST_F(GradientPlacementTest, APendingAndAReducedGradientAddUpToAPendingOne) {
  Tensor x = constant({4, 6}, {Shard(0), Replicate()}), w = leaf({6, 8}, {Replicate(), Replicate()});
  sum(matmul(x, w)).backward();
  w.grad();
  sum(matmul(x, w)).backward();
  EXPECT_EQ(pending_grad(w).placements(), (Placements{Partial(), Replicate()}));
  EXPECT_EQ(w.grad().layout(), w.layout());
}

TEST_F(GradientPlacementTest, IsReducedAfterEveryBackwardOnRequest) {
  Tensor x = constant({4, 6}, {Shard(0), Replicate()}), w = leaf({6, 8}, {Replicate(), Replicate()});
  backward({sum(matmul(x, w))}, {}, {}, {.reduction = GradientReduction::kEachBackward});
  EXPECT_EQ(pending_grad(w).layout(), w.layout());
}

TEST_F(GradientPlacementTest, TheGradientOfAGatherIsOneReduceScatter) {
  Tensor x = constant({4, 6}, {Shard(0), Replicate()}), stored = leaf({6, 8}, {Shard(0), Replicate()});
  Tensor loss = sum(matmul(x, stored.redistribute({Replicate(), Replicate()})));
  const size_t before = transfers().size();
  loss.backward();
  std::vector<const OperatorSpec*> moves = transfers();
  moves.erase(moves.begin(), moves.begin() + static_cast<int64_t>(before));
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0]->inputs[0]->layout.placements(), (Placements{Partial(), Replicate()}));
  EXPECT_EQ(moves[0]->outputs[0]->layout, stored.layout());
  EXPECT_EQ(stored.grad().layout(), stored.layout());
}

TEST_F(GradientPlacementTest, APartialTensorHasAReplicatedGradient) {
  Tensor p = leaf({4}, {Partial(), Shard(0)});
  sum(p.redistribute({Replicate(), Shard(0)})).backward();
  EXPECT_EQ(pending_grad(p).placements(), (Placements{Replicate(), Shard(0)}));
  EXPECT_EQ(p.grad().placements(), (Placements{Replicate(), Shard(0)}));
}

TEST_F(GradientPlacementTest, PendingHalvesAreAddedInFloat32) {
  Tensor x = ones({4, 6}, {.mesh = mesh_, .placements = {Shard(0), Replicate()}, .dtype = kBFloat16});
  Tensor w = leaf({6, 8}, {Replicate(), Replicate()}, kBFloat16);
  sum(matmul(x, w)).backward();
  EXPECT_EQ(pending_grad(w).dtype(), kBFloat16);
  sum(matmul(x, w)).backward();
  EXPECT_EQ(pending_grad(w).dtype(), kFloat32);
  EXPECT_EQ(pending_grad(w).placements(), (Placements{Partial(), Replicate()}));
  EXPECT_EQ(w.grad().dtype(), kBFloat16);
  EXPECT_EQ(w.grad().layout(), w.layout());
}

TEST_F(GradientPlacementTest, BackwardConvertsAndReducesWhateverThePolicyForward) {
  Tensor x = constant({4, 6}, {Shard(0), Replicate()}), w = leaf({6, 8}, {Replicate(), Replicate()});
  set_implicit_redistribution(false);
  // exp isn't linear, so that its gradient reduces what is pending.
  Tensor loss = sum_pending(matmul(x, exp(w)), {0, 1}).redistribute({Replicate(), Replicate()});
  loss.backward();
  EXPECT_EQ(w.grad().layout(), w.layout());
}

TEST_F(GradientPlacementTest, GradientsOfInputsComeReducedOrPendingAsAsked) {
  Tensor x = constant({4, 6}, {Shard(0), Replicate()}), w = leaf({6, 8}, {Replicate(), Replicate()});
  EXPECT_EQ(pending_gradients({sum(matmul(x, w))}, {}, {w})[0].placements(), (Placements{Partial(), Replicate()}));
  EXPECT_EQ(gradients({sum(matmul(x, w))}, {}, {w})[0].layout(), w.layout());
}

}  // namespace
}  // namespace dtorch::testing
