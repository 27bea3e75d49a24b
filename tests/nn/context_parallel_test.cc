// Attention over a split sequence against the same attention on one device: values, gradients, and what moves.
#include <gtest/gtest.h>

#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

struct Heads {
  int64_t query, key_value;
};

class ContextParallelTest : public KernelTest {
 protected:
  struct Result {
    HostTensor out, dq, dk, dv;
  };
  struct Mask {
    bool is_causal = false;
    RingOrder order = RingOrder::kAuto;
  };
  static Result attend(const Layout& layout, const Heads& heads, int64_t length, const Mask& mask, int64_t keys = 0) {
    const auto leaf = [&](int64_t count, int64_t tokens, uint64_t seed) {
      return distribute(normal({2, count, tokens, 4}, kFloat64, seed), layout).requires_grad_();
    };
    const int64_t key_length = keys > 0 ? keys : length;
    Tensor q = leaf(heads.query, length, 1), k = leaf(heads.key_value, key_length, 2),
           v = leaf(heads.key_value, key_length, 3);
    const Tensor out = scaled_dot_product_attention(q, k, v, {.is_causal = mask.is_causal, .ring_order = mask.order});
    EXPECT_EQ(out.layout(), layout);
    (out * distribute(normal(out.shape(), kFloat64, 4), layout)).sum().backward();
    EXPECT_EQ(k.grad().layout(), layout);
    return {out.to_host(), q.grad().to_host(), k.grad().to_host(), v.grad().to_host()};
  }

  // With a causal mask in both orders of a ring.
  static void expect_same_as_one_device(const Layout& layout, const Heads& heads, int64_t length, bool is_causal,
                                        int64_t keys = 0) {
    const Result want = attend(Layout::replicated(cpu_mesh({1})), heads, length, {is_causal}, keys);
    std::vector<RingOrder> orders = {RingOrder::kContiguous};
    if (is_causal) orders.push_back(RingOrder::kBalanced);
    for (RingOrder order : orders) {
      SCOPED_TRACE(layout.str() + " heads " + std::to_string(heads.query) + "/" + std::to_string(heads.key_value) +
                   " length " + std::to_string(length) + (is_causal ? " causal" : "") +
                   (order == RingOrder::kBalanced ? " balanced" : ""));
      const Result got = attend(layout, heads, length, {is_causal, order}, keys);
      EXPECT_EQ(difference(got.out, want.out, 1e-12), "");
      EXPECT_EQ(difference(got.dq, want.dq, 1e-12), "");
      EXPECT_EQ(difference(got.dk, want.dk, 1e-12), "");
      EXPECT_EQ(difference(got.dv, want.dv, 1e-12), "");
    }
  }
};

TEST_F(ContextParallelTest, ARingOfAnySizeOverAnyLength) {
  for (int64_t devices : {2, 3, 4}) {
    const Layout layout(cpu_mesh({devices}, {"ring_cp"}), {Shard(2)}, 4);
    for (int64_t length : {1, 3, 7, 8}) {  // also with devices that hold nothing
      for (bool is_causal : {false, true}) expect_same_as_one_device(layout, {4, 2}, length, is_causal);
    }
  }
}

// scenario_cases.md C19.
TEST_F(ContextParallelTest, HeadsAreExchangedWhateverTheirNumber) {
  const Layout four(cpu_mesh({4}, {"ulysses_cp"}), {Shard(2)}, 4), two(cpu_mesh({2}, {"ulysess_cp"}), {Shard(2)}, 4);
  for (bool is_causal : {false, true}) {
    expect_same_as_one_device(four, {12, 12}, 8, is_causal);
    expect_same_as_one_device(two, {28, 7}, 5, is_causal);
    expect_same_as_one_device(four, {8, 2}, 6, is_causal);
    expect_same_as_one_device(four, {10, 10}, 7, is_causal);
    expect_same_as_one_device(four, {3, 1}, 7, is_causal);  // fewer heads than devices
  }
}

TEST_F(ContextParallelTest, BothKindsTogetherAndBesideOtherAxes) {
  const DeviceMesh mesh = cpu_mesh({2, 2, 2}, {"dp", "ulysses_cp", "ring_cp"});
  const DeviceMesh heads = cpu_mesh({2, 2, 2}, {"ring_cp", "ulysses_cp", "tp"});
  for (bool is_causal : {false, true}) {
    expect_same_as_one_device(Layout(mesh, {Shard(0), Shard(2), Shard(2)}, 4), {4, 2}, 9, is_causal);  // X21
    expect_same_as_one_device(Layout(heads, {Shard(2), Shard(2), Shard(1)}, 4), {6, 2}, 9, is_causal);
  }
}

TEST_F(ContextParallelTest, SequencesOfDifferentLengths) {
  const Layout layout(cpu_mesh({3}, {"ring_cp"}), {Shard(2)}, 4);
  expect_same_as_one_device(layout, {2, 2}, 5, false, 8);
  expect_same_as_one_device(layout, {2, 2}, 5, true, 8);
}

// On the axes beside the sequence's, and on them, queries, keys and values may each be placed otherwise: either the
// result is that of one device or the call is refused.
TEST_F(ContextParallelTest, KeysAndValuesThatArePlacedOtherwiseAreBroughtToTheQueriesOrRefused) {
  const HostTensor values[] = {normal({2, 4, 5, 4}, kFloat64, 1), normal({2, 2, 5, 4}, kFloat64, 2),
                               normal({2, 2, 5, 4}, kFloat64, 3)};
  const Layout one = Layout::replicated(cpu_mesh({1}));
  std::vector<Tensor> whole;
  for (const HostTensor& value : values) whole.push_back(distribute(value, one).requires_grad_());
  const HostTensor weights = normal({2, 4, 5, 4}, kFloat64, 4);
  const auto attend = [&](const std::vector<Tensor>& in) {
    const Tensor out = scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true});
    (out * distribute(weights, Layout::replicated(out.mesh()))).sum().backward();
    return out.to_host();
  };
  const HostTensor want = attend(whole);
  const DeviceMesh mesh = cpu_mesh({2, 2}, {"dp", "ring_cp"});
  const Placement beside[] = {Replicate(), Shard(0), Shard(1), Partial()};
  const Placement along[] = {Shard(2), Replicate(), Partial(), Shard(0)};
  int64_t accepted = 0;
  for (size_t combination = 0; combination < 64; ++combination) {
    const size_t q = combination % 4, k = combination / 4 % 4, v = combination / 16;
    const Placements placements[] = {
        {beside[q], Shard(2)}, {beside[k], along[(q + v) % 4]}, {beside[v], along[(q + k) % 4]}};
    std::vector<Tensor> in;
    std::string trace;
    for (size_t i = 0; i < 3; ++i) {
      in.push_back(distribute(values[i], mesh, placements[i]).requires_grad_());
      trace += in.back().layout().str() + " ";
    }
    SCOPED_TRACE(trace);
    try {
      EXPECT_EQ(difference(attend(in), want, 1e-12), "");
      ++accepted;
    } catch (const PlacementError&) {
      continue;
    }
    for (size_t i = 0; i < 3; ++i) {
      if (!in[i].layout().has_partial()) {
        EXPECT_EQ(in[i].grad().placements(), placements[i]);
      }
      EXPECT_EQ(difference(in[i].grad().to_host(), whole[i].grad().to_host(), 1e-12), "");
    }
  }
  EXPECT_GE(accepted, 12);
}

TEST_F(ContextParallelTest, OperandsThatDoNotFitAreErrorsAtTheCall) {
  const DeviceMesh mesh = cpu_mesh({2}, {"ring_cp"});
  const auto of = [&](const Shape& shape, DType dtype, const Placements& placements) {
    return distribute(normal(shape, dtype, 1), mesh, placements);
  };
  const Tensor q = of({2, 4, 6, 4}, kFloat32, {Shard(2)});
  for (const Shape& shape : {Shape{2, 4, 6, 2}, Shape{3, 4, 6, 4}, Shape{2, 3, 6, 4}, Shape{2, 4, 6}, Shape{6}}) {
    const Tensor k = of(shape, kFloat32, {Replicate()});
    EXPECT_THROW(scaled_dot_product_attention(q, k, k), ShapeError) << shape;
    EXPECT_THROW(scaled_dot_product_attention(q, q, k), ShapeError) << shape;
  }
  const Tensor wide = of({2, 4, 6, 4}, kFloat64, {Shard(2)});
  EXPECT_THROW(scaled_dot_product_attention(q, wide, wide), DTypeError);
  const Tensor elsewhere = distribute(normal({2, 4, 6, 4}, kFloat32, 1), cpu_mesh({1, 2}), {Replicate(), Replicate()});
  EXPECT_THROW(scaled_dot_product_attention(q, elsewhere, elsewhere), MeshError);
}

TEST_F(ContextParallelTest, IsRefusedWhereImplicitRedistributionIsOff) {
  const Tensor q = distribute(normal({1, 2, 4, 2}, kFloat64, 1), Layout(cpu_mesh({2}, {"ring_cp"}), {Shard(2)}, 4));
  set_implicit_redistribution(false);
  EXPECT_THROW(scaled_dot_product_attention(q, q, q), PlacementError);
}

}  // namespace
}  // namespace dtorch::test
