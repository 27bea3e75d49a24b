// max_pool1d, max_pool2d, avg_pool1d, avg_pool2d over windows of x [N, C, L] or [N, C, H, W]. Batch and channels may be
// sharded; over sharded spatial dims the devices exchange the rows that the windows of their part read (halo.h).
// Outside of x a maximum has -infinity and a mean 0; count_include_pad says whether such rows count. A mean is linear
// in x. Gradients: of a maximum g at the first greatest element, found again in x; of a mean g's share of the window.
#include "ops/image/pool.h"
#include "ops/create/aten_call.h"

#include <algorithm>

#include "ops/move/combine.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/avg_pool2d_backward_cpu_dispatch.h>
#include <ATen/ops/avg_pool2d_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/max_pool2d_with_indices_backward_cpu_dispatch.h>
#include <ATen/ops/max_pool2d_with_indices_cpu_dispatch.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#endif

namespace dtorch {
namespace image {
namespace {

// The windows of a cut dim are those of its parts as they are: x, when pending, mustn't be split further by reducing
// it.
std::vector<Tensor> max_pool_gradient(const GradientContext& context) {
  const Tensor x = context.input(0).reduced();
  return {record(max_pool_grad_op, context.attributes<PoolAttrs>(), {&context.grad_output(0), &x}, Where::current())};
}
std::vector<Tensor> avg_pool_gradient(const GradientContext& context) {
  return {record(avg_pool_grad_op, context.attributes<PoolAttrs>(), {&context.grad_output(0)}, Where::current())};
}

#if DTORCH_WITH_KERNELS
// Padding that the kernel adds: cut dims have theirs already.
std::vector<int64_t> own_padding(const PoolAttrs& a) {
  std::vector<int64_t> padding = a.padding;
  for (size_t s = 0; s < padding.size(); ++s) {
    if (a.cut[s] != 0) padding[s] = 0;
  }
  return plane(padding, 0);
}

std::tuple<at::Tensor, at::Tensor> max_and_indices(const PoolAttrs& a, const at::Tensor& part) {
  return DTORCH_ATEN(max_pool2d_with_indices)(part, plane(a.kernel), plane(a.stride), own_padding(a), plane(a.dilation),
                                              a.ceil_mode);
}
void max_pool_kernel(KernelContext& context) {
  const auto& a = context.attributes<PoolAttrs>();
  const at::IntArrayRef sizes = output_sizes(context, 0);
  const at::Tensor& x = input(context, 0);
  if (context.output_box(0).empty()) return set_output(context, 0, at::empty(sizes, x.options()));
  const at::Tensor part = read_part(a, to_plane(a, x), sizes);
  set_output(context, 0, from_plane(a, std::get<0>(max_and_indices(a, part))));
}
void max_pool_grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<PoolAttrs>();
  const at::Tensor &g = input(context, 0), &x = input(context, 1);
  at::Tensor dx = at::zeros(output_sizes(context, 0), x.options());
  if (g.numel() > 0) {
    const at::Tensor part = read_part(a, to_plane(a, x), g.sizes()).contiguous();
    const at::Tensor indices = std::get<1>(max_and_indices(a, part));
    read_part(a, to_plane(a, dx), g.sizes())
        .copy_(DTORCH_ATEN(max_pool2d_with_indices_backward)(to_plane(a, g).contiguous(), part, plane(a.kernel),
                                                             plane(a.stride), own_padding(a), plane(a.dilation),
                                                             a.ceil_mode, indices));
  }
  set_output(context, 0, dx);
}

// Elements that each window of this device's part of the result counts; `box`: that part.
at::Tensor window_counts(const PoolAttrs& a, const Box& box, const at::Tensor& like) {
  at::Tensor counts;
  for (size_t s = 0; s < a.num_spatial(); ++s) {
    const int64_t dim = a.dim_of(s, box.ndim());
    std::vector<double> rows;
    for (int64_t i = 0; i < box.size[dim]; ++i) {
      const int64_t first = (box.offset[dim] + i) * a.stride[s] - a.padding[s];
      const int64_t end = std::min(first + a.kernel[s], a.size[s] + a.padding[s]);
      rows.push_back(static_cast<double>(a.count_include_pad ? end - first
                                                             : std::min(end, a.size[s]) - std::max<int64_t>(first, 0)));
    }
    const at::Tensor along = at::tensor(rows, like.options());
    counts = counts.defined() ? counts.unsqueeze(1).mul(along) : along;
  }
  return counts;
}
// The mean's divisor where LibTorch's own would not be right: windows of cut dims have their padding as rows.
std::optional<int64_t> own_divisor(const PoolAttrs& a) {
  if (a.divisor != 0) return a.divisor;
  return a.any_cut() ? std::optional<int64_t>(1) : std::nullopt;
}
void avg_pool_kernel(KernelContext& context) {
  const auto& a = context.attributes<PoolAttrs>();
  const at::IntArrayRef sizes = output_sizes(context, 0);
  const at::Tensor& x = input(context, 0);
  if (context.output_box(0).empty()) return set_output(context, 0, at::empty(sizes, x.options()));
  at::Tensor mean =
      from_plane(a, DTORCH_ATEN(avg_pool2d)(read_part(a, to_plane(a, x), sizes), plane(a.kernel), plane(a.stride),
                                            own_padding(a), a.ceil_mode, a.count_include_pad, own_divisor(a)));
  if (a.any_cut() && a.divisor == 0) mean = mean.div(window_counts(a, context.output_box(0), mean));
  set_output(context, 0, mean);
}
void avg_pool_grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<PoolAttrs>();
  at::Tensor g = input(context, 0);
  at::Tensor dx = at::zeros(output_sizes(context, 0), g.options());
  if (g.numel() > 0) {
    if (a.any_cut() && a.divisor == 0) g = g.div(window_counts(a, context.input_box(0), g));
    const at::Tensor part = read_part(a, to_plane(a, dx), g.sizes());
    part.copy_(DTORCH_ATEN(avg_pool2d_backward)(to_plane(a, g).contiguous(), part.contiguous(), plane(a.kernel),
                                                plane(a.stride), own_padding(a), a.ceil_mode, a.count_include_pad,
                                                own_divisor(a)));
  }
  set_output(context, 0, dx);
}
#endif

struct PoolCall {
  const OperatorDef& op;
  size_t num_spatial;
  bool of_max;
};

int64_t pooled_size(int64_t size, int64_t extent, int64_t stride, int64_t padding, bool ceil_mode) {
  const int64_t free = size + 2 * padding - extent + (ceil_mode ? stride - 1 : 0);
  if (free < 0) return 0;
  const int64_t out = free / stride + 1;
  // The last window must begin inside x or its left padding.
  return ceil_mode && (out - 1) * stride >= size + padding ? out - 1 : out;
}

Tensor pool(const PoolCall& call, const Tensor& given, const Extents& kernel, const PoolOptions& options,
            const AvgPoolOptions& of_mean, const Where& where) {
  const SourceScope scope(where);
  const size_t n = call.num_spatial;
  const char* op = call.op.name;
  has_batch(op, given, static_cast<int64_t>(n) + 2, where);
  Tensor x = given;
  if (call.of_max) x = reduce_pending(op, x, kMax, where);
  PoolAttrs a;
  a.kernel = spread(op, "kernel_size", kernel, n, 1, where);
  a.stride = options.stride ? spread(op, "stride", *options.stride, n, 1, where) : a.kernel;
  a.padding = spread(op, "padding", options.padding, n, 0, where);
  a.dilation = spread(op, "dilation", options.dilation, n, 1, where);
  a.ceil_mode = options.ceil_mode;
  a.count_include_pad = of_mean.count_include_pad;
  a.divisor = of_mean.divisor_override.value_or(0);
  if (of_mean.divisor_override == 0) throw at_line(UserError("[" + std::string(op) + "] divisor_override is 0"), where);
  for (size_t s = 0; s < n; ++s) {
    const int64_t dim = x.ndim() - static_cast<int64_t>(n - s), size = x.shape()[dim];
    if (a.padding[s] > a.kernel[s] / 2) {
      throw at_line(ShapeError("[" + std::string(op) + "] padding " + std::to_string(a.padding[s]) +
                               " is more than half of the kernel size " + std::to_string(a.kernel[s])),
                    where);
    }
    a.size.push_back(size);
    a.out.push_back(pooled_size(size, a.extent(s), a.stride[s], a.padding[s], a.ceil_mode));
    if (a.out[s] < 1) {
      throw at_line(ShapeError("[" + std::string(op) + "] the window doesn't fit into dim " + std::to_string(dim) +
                               " of " + x.shape().str() + " with its padding"),
                    where);
    }
  }
  a.in = a.size;
  x = with_windows(op, x, &a, call.of_max ? kLeast : 0, where);
  return record(call.op, a, {&x}, where);
}

template <bool kOfMax>
std::vector<Sample> pool1d_samples() {
  const auto call = [](int64_t kernel, PoolOptions options) {
    return [=](const std::vector<Tensor>& in) {
      if (kOfMax) return std::vector<Tensor>{max_pool1d(in[0], kernel, options)};
      return std::vector<Tensor>{
          avg_pool1d(in[0], kernel, {options.stride, options.padding, options.ceil_mode, false})};
    };
  };
  return {{.name = "uneven, padded",
           .inputs = {{{2, 3, 7}, kFloat64, SampleFill::kDistinct}},
           .call = call(3, {.stride = 2, .padding = 1, .ceil_mode = true})},
          {.name = "no batch, windows side by side",
           .inputs = {{{1, 8}, kFloat32, SampleFill::kDistinct}},
           .call = call(2, {})}};
}
std::vector<Sample> max_pool2d_samples() {
  return {{.name = "uneven, dilated",
           .inputs = {{{2, 3, 7, 5}, kFloat64, SampleFill::kDistinct}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{max_pool2d(in[0], {3, 2}, {.stride = 1, .padding = 1, .dilation = {2, 1}})};
               }},
          {.name = "size 1, ceil",
           .inputs = {{{1, 2, 5, 1}, kFloat32, SampleFill::kDistinct}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{max_pool2d(in[0], {2, 1}, {.ceil_mode = true})};
               }},
          {.name = "no batch elements", .inputs = {{{0, 2, 4, 4}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{max_pool2d(in[0], 2)};
           }}};
}
std::vector<Sample> avg_pool2d_samples() {
  return {
      {.name = "uneven, padded, ceil",
       .inputs = {{{2, 3, 7, 5}, kFloat64}},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{avg_pool2d(in[0], {3, 2}, {.stride = 2, .padding = 1, .ceil_mode = true})};
           }},
      {.name = "padding doesn't count",
       .inputs = {{{1, 1, 5, 3}}},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{avg_pool2d(in[0], 3, {.stride = 1, .padding = 1, .count_include_pad = false})};
           }},
      {.name = "own divisor", .inputs = {{{1, 2, 4, 6}}}, .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{avg_pool2d(in[0], 2, {.divisor_override = 3})};
       }}};
}

}  // namespace
}  // namespace image

constinit OperatorDef max_pool1d_op = {
    .name = "max_pool1d",
    .signature = "max_pool1d(x, kernel_size, stride, padding, dilation, ceil_mode) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_infer,
    .rule = image::max_pool_rule,
    .kernel = DTORCH_KERNEL(image::max_pool_kernel),
    .gradient = image::max_pool_gradient,
    .samples = image::pool1d_samples<true>,
    .placement_class = PlacementClass::kCombines,
};
constinit OperatorDef max_pool2d_op = {
    .name = "max_pool2d",
    .signature = "max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_infer,
    .rule = image::max_pool_rule,
    .kernel = DTORCH_KERNEL(image::max_pool_kernel),
    .gradient = image::max_pool_gradient,
    .samples = image::max_pool2d_samples,
    .placement_class = PlacementClass::kCombines,
};
constinit OperatorDef max_pool_grad_op = {
    .name = "max_pool_grad",
    .signature = "max_pool_grad(g, x, kernel_size, ...) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_grad_infer,
    .rule = image::pool_grad_rule,
    .kernel = DTORCH_KERNEL(image::max_pool_grad_kernel),
    .linear_in = "g",
};
constinit OperatorDef avg_pool1d_op = {
    .name = "avg_pool1d",
    .signature = "avg_pool1d(x, kernel_size, stride, padding, ceil_mode, count_include_pad) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_infer,
    .rule = image::mean_pool_rule,
    .kernel = DTORCH_KERNEL(image::avg_pool_kernel),
    .gradient = image::avg_pool_gradient,
    .samples = image::pool1d_samples<false>,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef avg_pool2d_op = {
    .name = "avg_pool2d",
    .signature =
        "avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_infer,
    .rule = image::mean_pool_rule,
    .kernel = DTORCH_KERNEL(image::avg_pool_kernel),
    .gradient = image::avg_pool_gradient,
    .samples = image::avg_pool2d_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef avg_pool_grad_op = {
    .name = "avg_pool_grad",
    .signature = "avg_pool_grad(g, kernel_size, ...) -> Tensor",
    .attributes = attribute_codec<image::PoolAttrs>(),
    .infer = image::pool_grad_infer,
    .rule = image::pool_grad_rule,
    .kernel = DTORCH_KERNEL(image::avg_pool_grad_kernel),
    .linear_in = "g",
};

Tensor max_pool1d(const Tensor& x, const Extents& kernel_size, const PoolOptions& options, Where where) {
  return image::pool({max_pool1d_op, 1, true}, x, kernel_size, options, {}, where);
}
Tensor max_pool2d(const Tensor& x, const Extents& kernel_size, const PoolOptions& options, Where where) {
  return image::pool({max_pool2d_op, 2, true}, x, kernel_size, options, {}, where);
}
Tensor avg_pool1d(const Tensor& x, const Extents& kernel_size, const AvgPoolOptions& options, Where where) {
  return image::pool({avg_pool1d_op, 1, false}, x, kernel_size,
                     {.stride = options.stride, .padding = options.padding, .ceil_mode = options.ceil_mode}, options,
                     where);
}
Tensor avg_pool2d(const Tensor& x, const Extents& kernel_size, const AvgPoolOptions& options, Where where) {
  return image::pool({avg_pool2d_op, 2, false}, x, kernel_size,
                     {.stride = options.stride, .padding = options.padding, .ceil_mode = options.ceil_mode}, options,
                     where);
}

}  // namespace dtorch
