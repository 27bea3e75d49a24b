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
  static Result attend(const Layout& layout, const Heads& heads, int64_t length, bool is_causal, int64_t keys = 0) {
    const auto leaf = [&](int64_t count, int64_t tokens, uint64_t seed) {
      return distribute(normal({2, count, tokens, 4}, kFloat64, seed), layout).requires_grad_();
    };
    const int64_t key_length = keys > 0 ? keys : length;
    Tensor q = leaf(heads.query, length, 1), k = leaf(heads.key_value, key_length, 2),
           v = leaf(heads.key_value, key_length, 3);
    const Tensor out = scaled_dot_product_attention(q, k, v, {.is_causal = is_causal});
    EXPECT_EQ(out.layout(), layout);
    (out * distribute(normal(out.shape(), kFloat64, 4), layout)).sum().backward();
    EXPECT_EQ(k.grad().layout(), layout);
    return {out.to_host(), q.grad().to_host(), k.grad().to_host(), v.grad().to_host()};
  }

  static void expect_same_as_one_device(const Layout& layout, const Heads& heads, int64_t length, bool is_causal,
                                        int64_t keys = 0) {
    SCOPED_TRACE(layout.str() + " heads " + std::to_string(heads.query) + "/" + std::to_string(heads.key_value) +
                 " length " + std::to_string(length) + (is_causal ? " causal" : ""));
    const Result want = attend(Layout::replicated(cpu_mesh({1})), heads, length, is_causal, keys);
    const Result got = attend(layout, heads, length, is_causal, keys);
    EXPECT_EQ(difference(got.out, want.out, 1e-12), "");
    EXPECT_EQ(difference(got.dq, want.dq, 1e-12), "");
    EXPECT_EQ(difference(got.dk, want.dk, 1e-12), "");
    EXPECT_EQ(difference(got.dv, want.dv, 1e-12), "");
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

TEST_F(ContextParallelTest, IsRefusedWhereImplicitRedistributionIsOff) {
  const Tensor q = distribute(normal({1, 2, 4, 2}, kFloat64, 1), Layout(cpu_mesh({2}, {"ring_cp"}), {Shard(2)}, 4));
  set_implicit_redistribution(false);
  EXPECT_THROW(scaled_dot_product_attention(q, q, q), PlacementError);
}

}  // namespace
}  // namespace dtorch::test
