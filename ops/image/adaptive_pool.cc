// adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_max_pool2d: result row o of n is over the rows [floor(o L / n),
// ceil((o + 1) L / n)) of L. Batch and channels may be sharded. A sharded spatial dim: where n divides L all windows
// have one length and the devices exchange rows at most (halo.h), else the dim is gathered; a mean over everything
// (n = 1) is combined from sums. Gradients as those of the other pools.
#include "ops/create/aten_call.h"
#include "ops/image/halo.h"
#include "ops/image/pool.h"
#include "ops/math/functions.h"
#include "ops/move/combine.h"
#include "ops/shape/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward.h>
#include <ATen/ops/_adaptive_avg_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/_adaptive_avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool2d_backward.h>
#include <ATen/ops/adaptive_max_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/adaptive_max_pool2d_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#endif

namespace dtorch {
namespace image {
namespace {

std::vector<Tensor> mean_gradient(const GradientContext& context) {
  return {
      record(adaptive_avg_pool_grad_op, context.attributes<PoolAttrs>(), {&context.grad_output(0)}, Where::current())};
}
// The windows of a cut dim are those of its parts as they are: x, when pending, mustn't be split further by reducing
// it.
std::vector<Tensor> max_gradient(const GradientContext& context) {
  const Tensor x = context.input(0).reduced();
  return {record(adaptive_max_pool_grad_op, context.attributes<PoolAttrs>(), {&context.grad_output(0), &x},
                 Where::current())};
}

#if DTORCH_WITH_KERNELS
// Sizes of the two last dims of a local result.
std::vector<int64_t> plane_of(const PoolAttrs& a, at::IntArrayRef sizes) {
  return plane({sizes.end() - static_cast<int64_t>(a.num_spatial()), sizes.end()});
}

template <bool kOfMax>
void kernel(KernelContext& context) {
  const auto& a = context.attributes<PoolAttrs>();
  const at::IntArrayRef sizes = output_sizes(context, 0);
  const at::Tensor& x = input(context, 0);
  if (context.output_box(0).empty()) return set_output(context, 0, at::empty(sizes, x.options()));
  const at::Tensor part = read_part(a, to_plane(a, x), sizes);
  const at::Tensor y = kOfMax ? std::get<0>(DTORCH_ATEN(adaptive_max_pool2d)(part, plane_of(a, sizes)))
                              : DTORCH_ATEN(_adaptive_avg_pool2d)(part, plane_of(a, sizes));
  set_output(context, 0, from_plane(a, y));
}
void mean_grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<PoolAttrs>();
  const at::Tensor& g = input(context, 0);
  at::Tensor dx = at::zeros(output_sizes(context, 0), g.options());
  if (g.numel() > 0) {
    const at::Tensor part = read_part(a, to_plane(a, dx), g.sizes());
    part.copy_(DTORCH_ATEN(_adaptive_avg_pool2d_backward)(to_plane(a, g).contiguous(), part.contiguous()));
  }
  set_output(context, 0, dx);
}
void max_grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<PoolAttrs>();
  const at::Tensor &g = input(context, 0), &x = input(context, 1);
  at::Tensor dx = at::zeros(output_sizes(context, 0), g.options());
  if (g.numel() > 0) {
    const at::Tensor part = read_part(a, to_plane(a, x), g.sizes()).contiguous();
    const at::Tensor indices = std::get<1>(DTORCH_ATEN(adaptive_max_pool2d)(part, plane_of(a, g.sizes())));
    read_part(a, to_plane(a, dx), g.sizes())
        .copy_(DTORCH_ATEN(adaptive_max_pool2d_backward)(to_plane(a, g).contiguous(), part, indices));
  }
  set_output(context, 0, dx);
}
#endif

Tensor adaptive_pool(const OperatorDef& op, const Tensor& given, const Extents& output_size, size_t num_spatial,
                     bool of_max, const Where& where) {
  const SourceScope scope(where);
  has_batch(op.name, given, static_cast<int64_t>(num_spatial) + 2, where);
  Tensor x = given;
  if (of_max) x = reduce_pending(op.name, x, kMax, where);
  PoolAttrs a;
  a.out = spread(op.name, "output_size", output_size, num_spatial, 1, where);
  a.padding.assign(num_spatial, 0);
  a.dilation.assign(num_spatial, 1);
  bool over_all = !of_max;
  std::vector<int64_t> dims;
  for (size_t s = 0; s < num_spatial; ++s) {
    const int64_t dim = x.ndim() - static_cast<int64_t>(num_spatial - s), size = x.shape()[dim];
    if (size == 0) {
      throw at_line(ShapeError("[" + std::string(op.name) + "] dim " + std::to_string(dim) + " of " + x.shape().str() +
                               " has no elements"),
                    where);
    }
    if (size % a.out[s] != 0) x = shaping::gather_dim(op.name, x, dim, where);
    a.size.push_back(size);
    a.kernel.push_back(std::max<int64_t>(1, size / a.out[s]));
    over_all = over_all && a.out[s] == 1;
    dims.push_back(dim);
  }
  a.in = a.size;
  a.stride = a.kernel;
  if (over_all) return mean(x, dims, /*keepdim=*/true, where);
  x = with_windows(op.name, x, &a, of_max ? kLeast : 0, where);
  return record(op, a, {&x}, where);
}

template <Tensor (*kPool)(const Tensor&, const Extents&, Where), bool kTwoDims>
std::vector<Sample> samples() {
  const auto call = [](const Extents& sizes) {
    return
        [sizes](const std::vector<Tensor>& in) { return std::vector<Tensor>{kPool(in[0], sizes, Where::current())}; };
  };
  const auto input = [](Shape shape, DType dtype) {
    if (!kTwoDims) shape.erase(shape.begin() + 2);
    return SampleInput{shape, dtype, SampleFill::kDistinct};
  };
  return {{.name = "uneven", .inputs = {input({2, 3, 4, 7}, kFloat64)}, .call = call(3)},
          {.name = "windows side by side", .inputs = {input({1, 2, 4, 8}, kFloat32)}, .call = call(4)},
          {.name = "over everything", .inputs = {input({2, 1, 3, 5}, kFloat32)}, .call = call(1)}};
}

}  // namespace
}  // namespace image

constinit OperatorDef adaptive_avg_pool1d_op = {
    .name = "adaptive_avg_pool1d",
    .signature = "adaptive_avg_pool1d(x, output_size) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_infer,
    .rule = image::mean_pool_rule,
    .kernel = DTORCH_KERNEL(image::kernel<false>),
    .gradient = image::mean_gradient,
    .samples = image::samples<adaptive_avg_pool1d, false>,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef adaptive_avg_pool2d_op = {
    .name = "adaptive_avg_pool2d",
    .signature = "adaptive_avg_pool2d(x, output_size) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_infer,
    .rule = image::mean_pool_rule,
    .kernel = DTORCH_KERNEL(image::kernel<false>),
    .gradient = image::mean_gradient,
    .samples = image::samples<adaptive_avg_pool2d, true>,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef adaptive_avg_pool_grad_op = {
    .name = "adaptive_avg_pool_grad",
    .signature = "adaptive_avg_pool_grad(g, x's sizes) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_grad_infer,
    .rule = image::pool_grad_rule,
    .kernel = DTORCH_KERNEL(image::mean_grad_kernel),
    .linear_in = "g",
};
constinit OperatorDef adaptive_max_pool2d_op = {
    .name = "adaptive_max_pool2d",
    .signature = "adaptive_max_pool2d(x, output_size) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_infer,
    .rule = image::max_pool_rule,
    .kernel = DTORCH_KERNEL(image::kernel<true>),
    .gradient = image::max_gradient,
    .samples = image::samples<adaptive_max_pool2d, true>,
    .placement_class = PlacementClass::kCombines,
};
constinit OperatorDef adaptive_max_pool_grad_op = {
    .name = "adaptive_max_pool_grad",
    .signature = "adaptive_max_pool_grad(g, x) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_grad_infer,
    .rule = image::pool_grad_rule,
    .kernel = DTORCH_KERNEL(image::max_grad_kernel),
    .linear_in = "g",
};

Tensor adaptive_avg_pool1d(const Tensor& x, const Extents& output_size, Where where) {
  return image::adaptive_pool(adaptive_avg_pool1d_op, x, output_size, 1, false, where);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const Extents& output_size, Where where) {
  return image::adaptive_pool(adaptive_avg_pool2d_op, x, output_size, 2, false, where);
}
Tensor adaptive_max_pool2d(const Tensor& x, const Extents& output_size, Where where) {
  return image::adaptive_pool(adaptive_max_pool2d_op, x, output_size, 2, true, where);
}

}  // namespace dtorch
