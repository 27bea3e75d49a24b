// scenario_cases.md: C01 to C16. C06 (d), C08 (c) and (d) and C10 are in scenario_index_test.cc, C17 to C23 in
// scenario_training_test.cc.
#include <cmath>

#include "nn/optim.h"
#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

HostTensor floats(const Shape& shape, const std::vector<float>& values) { return HostTensor::of<float>(shape, values); }

HostTensor counted(const Shape& shape) { return seq(shape).to(kFloat32); }

// Parts of a pending sum on a mesh of as many devices.
Tensor pending(const std::vector<std::vector<float>>& parts) {
  const int64_t size = static_cast<int64_t>(parts[0].size());
  return from_local(
      cpu_mesh({static_cast<int64_t>(parts.size())}), {P()},
      [&](int64_t device, const Shape& shape) { return floats(shape, parts[static_cast<size_t>(device)]); }, {size});
}

TEST_F(ScenarioCase, C01MeanOverAnUnevenSplit) {
  const Tensor a = distribute(counted({3, 4}), cpu_mesh({2}), {S(0)}),
               b = distribute(counted({1, 4}), cpu_mesh({2}), {S(0)});
  EXPECT_EQ(mean(a).item<float>(), 5.5f);
  EXPECT_EQ(mean(b).item<float>(), 1.5f);
  EXPECT_TRUE(mean(a, {0}).to_host().equals(floats({4}, {4, 5, 6, 7})));
}

TEST_F(LayoutCase, C02UnevenSplitAndBack) {
  const HostTensor value = counted({5, 10});
  Tensor x = from_host(value, {.mesh = cpu_mesh({4})});
  for (const Placement& placement : {S(0), R(), S(0), S(1), R()}) {
    x = x.redistribute({placement});
    expect_tensor(x, {placement}, value);
    int64_t rows = 0;
    for (const Shape& local : local_shapes(x)) rows += local[0];
    EXPECT_EQ(rows, placement.is_shard(0) ? 5 : 20);
  }
  for (int64_t n = 1; n <= 17; ++n) {
    for (int64_t devices = 1; devices <= 8; ++devices) {
      const Tensor whole = from_host(counted({n}), {.mesh = cpu_mesh({devices})});
      EXPECT_TRUE(whole.redistribute({S(0)}).redistribute({R()}).to_host().equals(counted({n})))
          << n << " over " << devices;
    }
  }
}

TEST_F(ScenarioCase, C05PendingSumWithPlainNumbersAndCallCache) {
  const Tensor total = sum(distribute(counted({10}), cpu_mesh({2}), {S(0)}));
  const Tensor ten = from_host(floats({}, {10}), {.mesh = cpu_mesh({2})});
  EXPECT_EQ((total + 10).item<float>(), 55);
  EXPECT_EQ((total + ten).item<float>(), 55);
  const Tensor unread = sum_pending(distribute(counted({10}), cpu_mesh({2}), {S(0)}), {});
  EXPECT_EQ((unread + ten).item<float>(), 55);
  const Tensor p = pending({{1}, {2}});
  EXPECT_EQ((-5 * p).item<float>(), -15);
  EXPECT_EQ((2 * p).item<float>(), 6);
  const Tensor ones = distribute(floats({2}, {1, 1}), cpu_mesh({2}), {S(0)});
  for (int factor : {1, 2, 3}) EXPECT_EQ((mean(ones) * factor).item<float>(), static_cast<float>(factor));
}

TEST_F(ScenarioCase, C05AFrozenLayerBeforeATrainableOneOfTheSameShapes) {
  const auto gradient = [](const DeviceMesh& mesh, const Placement& heads) {
    const auto weight = [&](uint64_t seed, bool trainable) {
      return distribute(normal({4, 2, 8}, kFloat64, seed), mesh, {heads}).requires_grad_(trainable);
    };
    const auto attend = [&](const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v) {
      return scaled_dot_product_attention(einsum("btd,hkd->bhtk", x, q), einsum("btd,hkd->bhtk", x, k),
                                          einsum("btd,hkd->bhtk", x, v), {.is_causal = true});
    };
    const Tensor x = distribute(normal({2, 5, 8}, kFloat64, 9), mesh, {R()});
    const auto merged = [&](const Tensor& heads_out) {
      return reshape(transpose(heads_out.redistribute({R()}), 1, 2), {2, 5, 8});
    };
    const Tensor frozen = merged(attend(x, weight(1, false), weight(2, false), weight(3, false)));
    const std::vector<Tensor> trainable = {weight(4, true), weight(5, true), weight(6, true)};
    sum(square(merged(attend(frozen, trainable[0], trainable[1], trainable[2])))).backward();
    std::vector<HostTensor> gradients;
    for (const Tensor& w : trainable) gradients.push_back(w.grad().to_host());
    return gradients;
  };
  const std::vector<HostTensor> one = gradient(cpu_mesh({1}), R()), two = gradient(cpu_mesh({2}), S(0));
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(difference(two[i], one[i], 1e-11), "") << i;
}

TEST_F(ScenarioCase, C06PendingSumIntoNonLinearCalls) {
  const Tensor p = pending({{1, 3}, {2, 1}});
  EXPECT_EQ(std::sqrt(sum_of_squares({p}).item<float>()), 5);
  EXPECT_EQ(norm(p).item<float>(), 5);
  EXPECT_EQ(max(p).item<float>(), 4);
  EXPECT_THROW(relu(p), PlacementError);
  EXPECT_TRUE(relu(p.redistribute({R()})).to_host().equals(floats({2}, {3, 4})));
  const Tensor b = pending({{1.5f}, {1.5f}});
  EXPECT_THROW(clamp(b, {}, 2), PlacementError);
  expect_tensor(clamp(b.redistribute({R()}), {}, 2), {R()}, floats({1}, {2}));
  const Tensor numbers = pending({{0}, {1}, {2}, {3}});
  EXPECT_EQ(numbers.item<float>(), 6);
  EXPECT_TRUE(numbers.to_host().equals(floats({1}, {6})));
}

TEST_F(ScenarioCase, C07PendingSumInBfloat16) {
  const DeviceMesh mesh = cpu_mesh({8});
  const auto parts = [&](int64_t size) {
    return from_local(mesh, {P()},
                      [](int64_t device, const Shape& shape) {
                        return HostTensor::full(shape, device == 0 ? 256.0f : 1.0f).to(kBFloat16);
                      },
                      {size});
  };
  EXPECT_EQ(parts(1).redistribute({R()}).item<float>(), 264);
  const Tensor wide = to(parts(1), kFloat32);
  EXPECT_EQ(wide.placements(), Placements{P()});
  EXPECT_EQ(wide.redistribute({R()}).item<float>(), 263);
  for (float x : parts(8).redistribute({S(0)}).to_host().to_vector<float>()) EXPECT_EQ(x, 264);

  const Tensor large = pending({{1e8f}, {1}, {-1e8f}, {1}});
  const HostTensor first = large.redistribute({R()}).to_host();
  // A fold in mesh order in float32: ((1e8 + 1) - 1e8) + 1, and 1e8 + 1 is 1e8.
  EXPECT_EQ(first.element<float>(0), 1);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(large.redistribute({R()}).to_host().equals(first)) << i;
}

TEST_F(ScenarioCase, C08PositionsAcrossParts) {
  const Tensor a = distribute(floats({4}, {10, 5, 3, 8}), cpu_mesh({2}), {S(0)});
  EXPECT_EQ(argmax(a).item<int64_t>(), 0);
  EXPECT_EQ(argmin(a).item<int64_t>(), 2);
  const HostTensor distinct = normal({4, 4}, kFloat32, 8);
  const auto [values, indices] = max(distribute(distinct, cpu_mesh({4}), {S(1)}), 1);
  const auto [one_values, one_indices] = max(from_host(distinct), 1);
  expect_tensor(values, {R()}, one_values.to_host());
  expect_tensor(indices, {R()}, one_indices.to_host());
  const HostTensor long_rows = normal({2, 8192}, kFloat32, 88);
  const auto [top, at] = max(distribute(long_rows, cpu_mesh({8}), {S(1)}), 1);
  const auto [one_top, one_at] = max(from_host(long_rows), 1);
  expect_tensor(top, {R()}, one_top.to_host());
  expect_tensor(at, {R()}, one_at.to_host());
  const Tensor ties = distribute(floats({4}, {1, 1, 1, 1}), cpu_mesh({2}), {S(0)});
  EXPECT_EQ(argmax(ties).item<int64_t>(), argmax(from_host(floats({4}, {1, 1, 1, 1}))).item<int64_t>());
}

TEST_F(ScenarioCase, C12MatrixProductOrderOfPartsAndRefusals) {
  const DeviceMesh mesh = cpu_mesh({2, 2}, {"dp", "tp"});
  const HostTensor a_host = counted({4, 4});
  const HostTensor product =
      floats({4, 4}, {56, 62, 68, 74, 152, 174, 196, 218, 248, 286, 324, 362, 344, 398, 452, 506});
  const Tensor a = distribute(a_host, mesh, {S(1), S(1)});
  const Tensor same = distribute(a_host, mesh, {S(0), S(0)});
  const Tensor swapped = distribute(a_host, Layout(mesh, {S(0), S(0)}, 2, std::vector<std::string>{"tp", "dp"}));
  expect_tensor(matmul(a, same), {P(), P()}, product);
  EXPECT_THROW(matmul(a, swapped), PlacementError);
  expect_tensor(matmul(a, swapped.redistribute(same.layout())), {P(), P()}, product);

  const Tensor left = iota_on({4, 5}, {2}, {R()}), right = iota_on({5, 8}, {2}, {S(0)});
  EXPECT_EQ(check_tensor(matmul(left, right),
                         on_one_device([](const auto& in) { return matmul(in[0], in[1]); }, {left, right})),
            "");
  const Tensor cube = iota_on({3, 4, 5}, {2}, {S(0)});
  EXPECT_EQ(
      check_tensor(select(cube, 0, 1), on_one_device([](const auto& in) { return select(in[0], 0, 1); }, {cube}), 0),
      "");
  const Tensor elsewhere = distribute(iota({5, 8}), DeviceMesh("cpu", {2}, {2, 3}), {R()});
  EXPECT_THROW(matmul(left, elsewhere), MeshError);
}

TEST_F(ScenarioCase, C13RowParallelProductPlusBias) {
  const DeviceMesh mesh = cpu_mesh({2});
  const Tensor x = distribute(floats({1, 2}, {1, 2}), mesh, {S(1)}).requires_grad_();
  const Tensor w = distribute(floats({2, 1}, {1, 1}), mesh, {S(0)}).requires_grad_();
  const Tensor b = distribute(floats({1}, {10}), mesh, {R()}).requires_grad_();
  const Tensor y = matmul(x, w) + b;
  EXPECT_EQ(y.item<float>(), 13);
  sum(y).backward();
  expect_tensor(x.grad(), {S(1)}, floats({1, 2}, {1, 1}));
  expect_tensor(w.grad(), {S(0)}, floats({2, 1}, {1, 2}));
  expect_tensor(b.grad(), {R()}, floats({1}, {1}));
}

TEST_F(ScenarioCase, C16ClippingOverParametersOnDifferentMeshes) {
  const DeviceMesh first("cpu", {2}, {0, 1}), second("cpu", {2}, {2, 3});
  for (bool second_is_pending : {false, true}) {
    const nn::Parameter a(distribute(floats({2}, {0, 0}), first, {S(0)})),
        b(distribute(floats({1}, {0}), second, {R()}));
    // Gradients [3, 0], and [4], which is 1 + 3 pending parts in the second round.
    sum(a.value() * distribute(floats({2}, {3, 0}), first, {S(0)})).backward();
    if (second_is_pending) {
      const Tensor factor = from_local(
          second, {P()},
          [](int64_t device, const Shape& shape) { return HostTensor::full(shape, device == 2 ? 1.0f : 3.0f); }, {1});
      sum(b.value() * factor).backward();
    } else {
      sum(b.value() * 4.0).backward();
    }
    const Tensor norm = nn::clip_grad_norm({a, b}, 1.0);
    EXPECT_EQ(norm.item<float>(), 5);
    for (int64_t device : norm.mesh().devices()) EXPECT_EQ(norm.to_host_local(device).element<float>(0), 5);
    EXPECT_EQ(check_tensor(a.grad(), floats({2}, {0.6f, 0}), 2e-6), "");
    EXPECT_EQ(check_tensor(b.grad(), floats({1}, {0.8f}), 2e-6), "");
  }
}

}  // namespace
}  // namespace dtorch::test
