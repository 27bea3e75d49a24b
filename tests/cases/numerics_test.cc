// Cases of the kind of C07 and C16: what is added up in a wider type, and what counts once however many devices hold
// it.
#include <cmath>
#include <limits>

#include "nn/optim.h"
#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

using NumericsCase = KernelTest;

// One part a device: `first` on device 0, `others` elsewhere.
Tensor parts(const Layout& layout, const Shape& shape, DType dtype, float first, float others) {
  return from_local(
      layout,
      [&](int64_t device, const Shape& local) {
        return HostTensor::full(local, device == 0 ? first : others).to(dtype);
      },
      shape);
}

void expect_all(const Tensor& x, float value) {
  for (float got : x.to_host().to(kFloat32).to_vector<float>()) EXPECT_EQ(got, value) << x.str();
}

// 256 and seven ones: 263 in float32, 264 in bfloat16; one by one in bfloat16 it would stay 256.
TEST_F(NumericsCase, PendingHalvesAreAddedInFloat32HoweverTheyTravel) {
  const DeviceMesh line = cpu_mesh({8}), square_mesh = cpu_mesh({4, 2}), cube = cpu_mesh({2, 2, 2}),
                   other("cpu", {3}, {1, 6, 2});
  for (const Shape& shape : {Shape{1}, Shape{5}, Shape{9, 3}, Shape{0, 4}}) {
    const int64_t ndim = shape.ndim();
    for (const Layout& layout :
         {Layout(line, {P()}, ndim), Layout(square_mesh, {P(), P()}, ndim), Layout(cube, {P(), P(), P()}, ndim)}) {
      const Tensor p = parts(layout, shape, kBFloat16, 256, 1);
      SCOPED_TRACE(p.str());
      const auto every = [&](const Placement& placement) { return Placements(layout.mesh().num_axes(), placement); };
      expect_all(p.redistribute(every(R())), 264);
      expect_all(p.redistribute(every(S(0))), 264);
      expect_all(p.redistribute(every(R()), {.dtype = kFloat32}), 263);
      expect_all(p.redistribute(every(S(0)), {.dtype = kFloat64}), 263);
      expect_all(p.redistribute(other, {S(0)}), 264);
      expect_all(p.redistribute(other, {R()}, {.dtype = kFloat32}), 263);
      expect_all(to(p, kFloat32).reduced(), 263);
      expect_all(p, 264);
      expect_all(p * 2.0, 528);
      if (shape.num_elements() != 0) expect_all(max(p), 264);
    }
  }
  const Layout mixed(square_mesh, {P(), S(0)}, 1);
  const Tensor p = from_local(mixed,
                              [](int64_t device, const Shape& local) {
                                return HostTensor::full(local, device < 2 ? 256.0f : 1.0f).to(kBFloat16);
                              },
                              {7});
  expect_all(p.redistribute({S(0), S(0)}), 260);  // 259
  expect_all(p.redistribute({R(), S(0)}, {.dtype = kFloat32}), 259);
  const Tensor halves = parts(Layout(line, {P()}, 1), {3}, kFloat16, 2048, 1);
  expect_all(halves.redistribute({R()}), 2056);  // 2055
  expect_all(halves.redistribute({S(0)}, {.dtype = kFloat32}), 2055);
}

TEST_F(NumericsCase, SumsOfHalvesAreExactOnEveryLayout) {
  const HostTensor ones = HostTensor::full({1000, 3}, 1.0f).to(kBFloat16);
  for (const auto& [mesh, placements] : std::vector<std::pair<Shape, Placements>>{
           {{1}, {R()}}, {{7}, {S(0)}}, {{2, 3}, {S(0), S(0)}}, {{2, 2}, {S(1), S(0)}}}) {
    const Tensor x = distribute(ones, cpu_mesh(mesh), placements);
    SCOPED_TRACE(x.str());
    expect_all(sum(x, {0}), 1000);
    EXPECT_NEAR(sum(x).to_host().to(kFloat32).element<float>(0), 3000, 16);  // steps of bfloat16 are 16 there
    expect_all(mean(x, {0}), 1);
    EXPECT_EQ(sum(x, {0, 1}, false, kFloat32).item<float>(), 3000);
  }
}

TEST_F(NumericsCase, RepeatedSumsAreTheSameBits) {
  const Tensor x = distribute(normal({101, 7}, kFloat32, 4), cpu_mesh({2, 3}), {S(0), P()});
  const HostTensor first = sum(x).to_host(), rows = x.redistribute({R(), S(1)}).to_host();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(sum(x).to_host().equals(first)) << i;
    ASSERT_TRUE(x.redistribute({R(), S(1)}).to_host().equals(rows)) << i;
  }
}

struct Given {
  Layout layout;
  Shape shape;
  std::vector<float> gradient;
  DType dtype = kFloat32;
};
// A parameter of zeros whose gradient is what is given.
nn::Parameter with_gradient(const Given& given) {
  const nn::Parameter parameter(distribute(HostTensor(given.shape, given.dtype), given.layout));
  sum(parameter.value() * distribute(HostTensor::of<float>(given.shape, given.gradient).to(given.dtype),
                                     Layout::replicated(given.layout.mesh())))
      .backward();
  return parameter;
}

TEST_F(NumericsCase, ClippingCountsEveryElementOnce) {
  const DeviceMesh first("cpu", {2}, {0, 1}), second("cpu", {3}, {2, 3, 4}),
      grid = cpu_mesh({2, 2}), alone("cpu", {1}, {7}), crossed("cpu", {2}, {5, 0});
  const std::vector<nn::Parameter> parameters = {with_gradient({Layout(first, {S(0)}, 1), {2}, {1, 0}}),
                                                 with_gradient({Layout::replicated(second), {1}, {2}}),
                                                 with_gradient({Layout(grid, {S(0), S(0)}, 1), {3}, {0, 2, 0}}),
                                                 with_gradient({Layout(grid, {R(), S(1)}, 2), {2, 1}, {0, 4}}),
                                                 with_gradient({Layout::replicated(alone), {}, {5}}),
                                                 with_gradient({Layout(crossed, {S(0)}, 2), {0, 3}, {}}),
                                                 nn::Parameter(zeros({4}, {.mesh = second}))};  // without a gradient
  // 1 + 4 + 4 + 16 + 25 = 50
  const Tensor norm = nn::clip_grad_norm(parameters, 1.0);
  EXPECT_NEAR(norm.item<float>(), std::sqrt(50.0), 1e-6);
  EXPECT_NEAR(parameters[3].grad().to_host().element<float>(1), 4 / std::sqrt(50.0), 1e-6);
  EXPECT_NEAR(parameters[4].grad().item<float>(), 5 / std::sqrt(50.0), 1e-6);
  // Below the limit nothing changes.
  const HostTensor before = parameters[1].grad().to_host();
  EXPECT_NEAR(nn::clip_grad_norm(parameters, 1e6).item<float>(), 1, 1e-6);
  EXPECT_EQ(difference(parameters[1].grad().to_host(), before, 1e-6), "");
  EXPECT_FALSE(parameters[6].grad().defined());
}

TEST_F(NumericsCase, ClippingOfDtypesAndOfNothing) {
  const DeviceMesh mesh = cpu_mesh({2});
  const std::vector<nn::Parameter> mixed = {with_gradient({Layout(mesh, {S(0)}, 1), {2}, {3, 0}, kBFloat16}),
                                            with_gradient({Layout::replicated(mesh), {1}, {4}, kFloat64})};
  EXPECT_NEAR(nn::clip_grad_norm(mixed, 1.0).to_host().to(kFloat64).element<double>(0), 5, 1e-6);
  EXPECT_NEAR(mixed[0].grad().to_host().to(kFloat32).element<float>(0), 0.6, 2e-3);
  EXPECT_NEAR(mixed[1].grad().to_host().element<double>(0), 0.8, 1e-6);
  const std::vector<nn::Parameter> nothing = {with_gradient({Layout(mesh, {S(0)}, 1), {2}, {0, 0}})};
  EXPECT_EQ(nn::clip_grad_norm(nothing, 1.0).item<float>(), 0);
  expect_all(nothing[0].grad(), 0);
}

}  // namespace
}  // namespace dtorch::test
