// interpolate(x [N, C, L] or [N, C, H, W]): nearest, or linear in each spatial dim. Linear in x. Batch and channels may
// be sharded; over a sharded spatial dim the devices exchange the rows that their part of the result reads (halo.h) and
// weigh them by global position. Gradient: the adjoint.
#include <algorithm>
#include <cmath>

#include "ops/image/halo.h"
#include "ops/image/operators.h"
#include "ops/nn/operators.h"
#include "ops/shape/functions.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_bilinear2d_backward.h>
#include <ATen/ops/upsample_bilinear2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_bilinear2d_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>
#include <ATen/ops/upsample_nearest2d_backward_cpu_dispatch.h>
#include <ATen/ops/upsample_nearest2d_cpu_dispatch.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {
namespace image {
namespace {

// One entry a spatial dim in every list; the scales are of the last dim and the one before it.
struct InterpolateAttrs {
  std::vector<int64_t> size, in, out;  // of x; of the tensor that the kernel gets; of the result
  std::vector<int64_t> cut;            // 1: the dim is sharded, see halo.h
  double scale_h = 0, scale_w = 0;     // 0: out / size
  bool linear = false, align_corners = false;
  template <class V>
  void fields(V& v) {
    v("size", size);
    v("in", in);
    v("out", out);
    v("cut", cut);
    v("scale_h", scale_h);
    v("scale_w", scale_w);
    v("linear", linear);
    v("align_corners", align_corners);
  }
  double scale(size_t s) const { return s + 1 == size.size() ? scale_w : scale_h; }
};

// Rows of x that row o of the result reads, and the weight of the second.
struct Source {
  int64_t first = 0, second = 0;
  double weight = 0;
};
// As LibTorch computes them; nearest in float32.
Source source_of(const InterpolateAttrs& a, size_t s, int64_t o) {
  const int64_t in = a.size[s], out = a.out[s];
  if (in == out) return {o, o, 0};
  const double given = a.scale(s);
  if (!a.linear) {
    if (out == 2 * in) return {o / 2, o / 2, 0};
    const float step = given > 0 ? static_cast<float>(1 / given) : static_cast<float>(in) / static_cast<float>(out);
    const int64_t row = std::min(static_cast<int64_t>(std::floor(static_cast<float>(o) * step)), in - 1);
    return {row, row, 0};
  }
  double at = 0;
  if (a.align_corners) {
    at = out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) * static_cast<double>(o) : 0;
  } else {
    const double step = given > 0 ? 1 / given : static_cast<double>(in) / static_cast<double>(out);
    at = std::max(0.0, step * (static_cast<double>(o) + 0.5) - 0.5);
  }
  const int64_t first = std::min(static_cast<int64_t>(at), in - 1);
  return {first, std::min(first + 1, in - 1), std::min(at - static_cast<double>(first), 1.0)};
}

std::vector<OutputMeta> with_space(const InferContext& context, const std::vector<int64_t>& space) {
  nn_ops::need_floating(context, 0);
  Shape shape = {context.shape(0)[0], context.shape(0)[1]};
  for (int64_t size : space) shape.push_back(size);
  return {{shape, context.dtype(0)}};
}
std::vector<OutputMeta> infer(const InferContext& context) {
  return with_space(context, context.attributes<InterpolateAttrs>().out);
}
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  return with_space(context, context.attributes<InterpolateAttrs>().in);
}

Rule linear_rule(const InferContext& context) {
  const auto& a = context.attributes<InterpolateAttrs>();
  Letters letters = {1, 2};
  for (size_t s = 0; s < a.cut.size(); ++s) {
    letters.push_back(a.cut[s] != 0 ? static_cast<int16_t>(3 + s) : kNoLetter);
  }
  return letters_rule({letters}, {letters}, {{0}});
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  Rule rule = linear_rule(context);
  if (context.attributes<InterpolateAttrs>().linear) return rule;
  // Copies.
  for (ReduceOp kind : {kMax, kMin}) rule.rows.push_back({{Partial(kind)}, {Partial(kind)}});
  return rule;
}
Rule grad_rule(const InferContext& context, std::span<const OutputMeta>) { return linear_rule(context); }

std::vector<Tensor> gradient(const GradientContext& context) {
  return {
      record(interpolate_grad_op, context.attributes<InterpolateAttrs>(), {&context.grad_output(0)}, Where::current())};
}

#if DTORCH_WITH_KERNELS
// Sources of the rows [first, first + count) of the result, counted from the first row that they read.
struct LocalSources {
  at::Tensor first, second, weight;
};
LocalSources local_sources(const InterpolateAttrs& a, size_t s, int64_t first, int64_t count, const at::Tensor& like) {
  std::vector<int64_t> from, to;
  std::vector<double> weights;
  for (int64_t o = first; o < first + count; ++o) {
    const Source source = source_of(a, s, o);
    const int64_t begin = source_of(a, s, first).first;
    from.push_back(source.first - begin);
    to.push_back(source.second - begin);
    weights.push_back(source.weight);
  }
  std::vector<int64_t> sizes(static_cast<size_t>(like.dim()), 1);
  sizes[s + 2] = count;
  const at::TensorOptions numbers = like.options().dtype(at::kLong);
  return {at::tensor(from, numbers), at::tensor(to, numbers), at::tensor(weights, like.options()).view(sizes)};
}

struct Plane {
  std::vector<int64_t> out, in;  // of the two last dims; a single one is the second
  std::optional<double> scale_h, scale_w;
};
// What is left to LibTorch: cut dims have their local size already.
Plane plane_of(const InterpolateAttrs& a, at::IntArrayRef out_sizes) {
  Plane plane;
  if (a.out.size() == 1) plane.out = plane.in = {1};
  for (size_t s = 0; s < a.out.size(); ++s) {
    const int64_t out = out_sizes[s + 2];
    plane.out.push_back(out);
    plane.in.push_back(a.cut[s] != 0 ? out : a.in[s]);
    const std::optional<double> scale = a.cut[s] == 0 && a.scale(s) > 0 ? std::optional(a.scale(s)) : std::nullopt;
    (s + 1 == a.out.size() ? plane.scale_w : plane.scale_h) = scale;
  }
  return plane;
}

void kernel(KernelContext& context) {
  const auto& a = context.attributes<InterpolateAttrs>();
  const at::IntArrayRef sizes = output_sizes(context, 0);
  at::Tensor x = input(context, 0);
  if (context.output_box(0).empty()) return set_output(context, 0, at::empty(sizes, x.options()));
  for (size_t s = 0; s < a.cut.size(); ++s) {
    if (a.cut[s] == 0) continue;
    const auto dim = static_cast<int64_t>(s) + 2;
    const LocalSources from = local_sources(a, s, context.output_box(0).offset[dim], sizes[s + 2], x);
    at::Tensor first = x.index_select(dim, from.first);
    x = a.linear ? first.mul(from.weight.neg().add(1)).add_(x.index_select(dim, from.second).mul(from.weight)) : first;
  }
  const Plane plane = plane_of(a, sizes);
  if (plane.in != plane.out) {
    const at::Tensor two = a.out.size() == 1 ? x.unsqueeze(2) : x;
    x = a.linear ? DTORCH_ATEN(upsample_bilinear2d)(two, plane.out, a.align_corners, plane.scale_h, plane.scale_w)
                 : DTORCH_ATEN(upsample_nearest2d)(two, plane.out, plane.scale_h, plane.scale_w);
  }
  set_output(context, 0, x.reshape(sizes));
}

void grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<InterpolateAttrs>();
  const at::IntArrayRef sizes = output_sizes(context, 0);
  at::Tensor g = input(context, 0);
  if (g.numel() == 0) return set_output(context, 0, at::zeros(sizes, g.options()));
  const Plane plane = plane_of(a, g.sizes());
  std::vector<int64_t> local(g.sizes().begin(), g.sizes().end());
  for (size_t s = 0; s < a.cut.size(); ++s) {
    if (a.cut[s] == 0) local[s + 2] = a.in[s];
  }
  if (plane.in != plane.out) {
    const at::Tensor two = (a.out.size() == 1 ? g.unsqueeze(2) : g).contiguous();
    const std::vector<int64_t> x_sizes = {g.size(0), g.size(1), plane.in[0], plane.in[1]};
    g = a.linear ? DTORCH_ATEN(upsample_bilinear2d_backward)(two, plane.out, x_sizes, a.align_corners, plane.scale_h,
                                                             plane.scale_w)
                 : DTORCH_ATEN(upsample_nearest2d_backward)(two, plane.out, x_sizes, plane.scale_h, plane.scale_w);
    g = g.reshape(local);
  }
  for (size_t s = 0; s < a.cut.size(); ++s) {
    if (a.cut[s] == 0) continue;
    const auto dim = static_cast<int64_t>(s) + 2;
    const LocalSources to = local_sources(a, s, context.input_box(0).offset[dim], local[s + 2], g);
    local[s + 2] = sizes[s + 2];
    at::Tensor dx = at::zeros(local, g.options());
    dx.index_add_(dim, to.first, a.linear ? g.mul(to.weight.neg().add(1)) : g);
    if (a.linear) dx.index_add_(dim, to.second, g.mul(to.weight));
    g = dx;
  }
  set_output(context, 0, g);
}
#endif

std::vector<Sample> samples() {
  const auto call = [](InterpolateOptions options) {
    return [options](const std::vector<Tensor>& in) { return std::vector<Tensor>{interpolate(in[0], options)}; };
  };
  InterpolateOptions nearest, rows, smaller, bilinear, corners;
  nearest.scale_factor = {2};
  rows.size = Extents{7};
  smaller.size = Extents{3, 2};
  bilinear.scale_factor = {2, 1.5};
  bilinear.mode = "bilinear";
  corners.size = Extents{4, 9};
  corners.mode = "bilinear";
  corners.align_corners = true;
  return {{.name = "nearest, twice the size", .inputs = {{{2, 3, 5, 4}, kFloat64}}, .call = call(nearest)},
          {.name = "nearest, one dim", .inputs = {{{2, 1, 3}}}, .call = call(rows)},
          {.name = "nearest, smaller", .inputs = {{{1, 2, 7, 5}}}, .call = call(smaller)},
          {.name = "bilinear by factors", .inputs = {{{1, 2, 5, 4}, kFloat64}}, .call = call(bilinear)},
          {.name = "bilinear with corners", .inputs = {{{2, 1, 7, 5}}}, .call = call(corners)}};
}

}  // namespace
}  // namespace image

constinit OperatorDef interpolate_op = {
    .name = "interpolate",
    .signature = "interpolate(x, size, scale_factor, mode, align_corners) -> Tensor",
    .attributes = attribute_codec<image::InterpolateAttrs>(),
    .infer = image::infer,
    .rule = image::rule,
    .kernel = DTORCH_KERNEL(image::kernel),
    .gradient = image::gradient,
    .samples = image::samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef interpolate_grad_op = {
    .name = "interpolate_grad",
    .signature = "interpolate_grad(g, x's sizes) -> Tensor",
    .attributes = attribute_codec<image::InterpolateAttrs>(),
    .infer = image::grad_infer,
    .rule = image::grad_rule,
    .kernel = DTORCH_KERNEL(image::grad_kernel),
    .linear_in = "g",
};

Tensor interpolate(const Tensor& given, const InterpolateOptions& options, Where where) {
  const SourceScope scope(where);
  const auto wrong = [&](const std::string& what) { return at_line(UserError("[interpolate] " + what), where); };
  const bool linear = options.mode == "linear" || options.mode == "bilinear";
  const int64_t expected = options.mode == "linear" ? 3 : 4;
  if (!linear && options.mode != "nearest") {
    throw wrong("mode is '" + options.mode + "', allowed are nearest, linear and bilinear");
  }
  if (linear ? given.ndim() != expected : given.ndim() != 3 && given.ndim() != 4) {
    throw at_line(
        ShapeError("[interpolate] x has shape " + given.shape().str() + ", " + options.mode + " takes [N, C, " +
                   (linear && expected == 4 ? "H, W]" : "L]") + (linear ? "" : " or [N, C, H, W]")),
        where);
  }
  if (options.align_corners && !linear) throw wrong("align_corners is for linear and bilinear");
  if (options.size.has_value() == !options.scale_factor.empty()) throw wrong("give either size or scale_factor");
  image::InterpolateAttrs a;
  a.linear = linear;
  a.align_corners = options.align_corners;
  const auto n = static_cast<size_t>(given.ndim()) - 2;
  a.size.assign(given.shape().begin() + 2, given.shape().end());
  a.cut.assign(n, 0);
  if (options.size) {
    a.out = image::spread("interpolate", "size", *options.size, n, 1, where);
  } else {
    std::vector<double> factors = options.scale_factor;
    if (factors.size() == 1) factors.assign(n, options.scale_factor[0]);
    if (factors.size() != n) throw wrong("scale_factor must be one number or one a spatial dim");
    for (size_t s = 0; s < n; ++s) {
      a.out.push_back(static_cast<int64_t>(std::floor(static_cast<double>(a.size[s]) * factors[s])));
      if (a.out[s] < 1) throw wrong("scale_factor leaves nothing of dim " + std::to_string(s + 2));
    }
    a.scale_w = factors[n - 1];
    if (n == 2) a.scale_h = factors[0];
  }
  for (int64_t size : a.size) {
    if (size == 0) throw at_line(ShapeError("[interpolate] x " + given.shape().str() + " has no elements"), where);
  }
  a.in = a.size;
  Tensor x = given;
  for (size_t s = 0; s < n; ++s) {
    const int64_t dim = static_cast<int64_t>(s) + 2;
    if (x.layout().axes_of_dim(dim).empty()) continue;
    const auto rows = [&](int64_t o) {
      const image::Source source = image::source_of(a, s, o);
      return std::pair(source.first, source.second + 1);
    };
    x = image::with_halo("interpolate", x, dim, {a.out[s], rows}, 0, where);
    a.cut[s] = 1;
    a.in[s] = x.shape()[dim];
  }
  return record(interpolate_op, a, {&x}, where);
}

}  // namespace dtorch
