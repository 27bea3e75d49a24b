// unfold(x [N, C, H, W]) -> [N, C k, L]: the k elements of each of the L windows, channel by channel; fold, its
// adjoint, adds windows up. Linear; each is the other's gradient. The kernels see [N, C, k, L], so that batch and
// channels may be sharded (reshape says when); sharded spatial dims, windows and elements of windows are gathered.
#include <algorithm>

#include "ops/image/operators.h"
#include "ops/move/combine.h"
#include "ops/nn/operators.h"
#include "ops/shape/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/col2im.h>
#include <ATen/ops/col2im_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/im2col_cpu_dispatch.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {
namespace image {
namespace {

struct UnfoldAttrs {
  std::vector<int64_t> size, kernel, dilation, padding, stride;
  template <class V>
  void fields(V& v) {
    v("size", size);
    v("kernel", kernel);
    v("dilation", dilation);
    v("padding", padding);
    v("stride", stride);
  }
  int64_t num_elements() const { return kernel[0] * kernel[1]; }
  int64_t num_windows() const {
    int64_t count = 1;
    for (size_t s = 0; s < 2; ++s) {
      const int64_t free = size[s] + 2 * padding[s] - dilation[s] * (kernel[s] - 1) - 1;
      count *= free < 0 ? 0 : free / stride[s] + 1;
    }
    return count;
  }
};

// Of [..., C, H, W]; its gradient has [..., C k, L].
std::vector<OutputMeta> unfold_infer(const InferContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  nn_ops::need_floating(context, 0);
  const Shape& x = context.shape(0);
  Shape shape(x.begin(), x.end() - 3);
  shape.push_back(x[x.ndim() - 3] * a.num_elements());
  shape.push_back(a.num_windows());
  return {{shape, context.dtype(0)}};
}
std::vector<OutputMeta> fold_infer(const InferContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  nn_ops::need_floating(context, 0);
  const Shape& x = context.shape(0);
  Shape shape(x.begin(), x.end() - 2);
  shape.push_back(x[x.ndim() - 2] / a.num_elements());
  shape.push_back(a.size[0]);
  shape.push_back(a.size[1]);
  return {{shape, context.dtype(0)}};
}
Rule rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape &x = context.shape(0), &y = outputs[0].global_shape;
  // [N, C, ...] or [C, ...]; one of x and y has one dim more, of space.
  const int64_t channel = std::min(x.ndim(), y.ndim()) - 2;
  const int64_t channels = std::min(x[channel], y[channel]);
  const OperandDim dims[] = {{0, channel}};
  const bool whole = groups_stay_whole(context.inputs[0]->layout.mesh(), sharding_axes(context, dims), channels,
                                       x[channel], y[channel]);
  Letters in = nn_ops::letters(channel), out;
  in.push_back(whole ? static_cast<int16_t>(channel + 1) : kNoLetter);
  out = in;
  in.resize(x.ndim(), kNoLetter);
  out.resize(y.ndim(), kNoLetter);
  return letters_rule({in}, {out}, {{0}});
}

template <OperatorDef& kAdjoint>
std::vector<Tensor> gradient(const GradientContext& context) {
  return {record(kAdjoint, context.attributes<UnfoldAttrs>(), {&context.grad_output(0)}, Where::current())};
}

#if DTORCH_WITH_KERNELS
void unfold_kernel(KernelContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  const at::Tensor& x = input(context, 0);
  const at::IntArrayRef sizes = output_sizes(context, 0);
  if (context.output_box(0).empty()) return set_output(context, 0, at::empty(sizes, x.options()));
  set_output(context, 0, DTORCH_ATEN(im2col)(x, a.kernel, a.dilation, a.padding, a.stride));
}
void fold_kernel(KernelContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  const at::Tensor& x = input(context, 0);
  if (context.output_box(0).empty()) {
    return set_output(context, 0, at::empty(output_sizes(context, 0), x.options()));
  }
  set_output(context, 0, DTORCH_ATEN(col2im)(x, a.size, a.kernel, a.dilation, a.padding, a.stride));
}
#endif

UnfoldAttrs make_attributes(const char* op, std::vector<int64_t> size, const Extents& kernel,
                            const UnfoldOptions& options, const Where& where) {
  UnfoldAttrs a;
  a.size = std::move(size);
  a.kernel = spread(op, "kernel_size", kernel, 2, 1, where);
  a.dilation = spread(op, "dilation", options.dilation, 2, 1, where);
  a.padding = spread(op, "padding", options.padding, 2, 0, where);
  a.stride = spread(op, "stride", options.stride, 2, 1, where);
  if (a.num_windows() == 0) {
    throw at_line(ShapeError("[" + std::string(op) + "] no window fits into " +
                             Shape(a.size.begin(), a.size.end()).str() + " with its padding"),
                  where);
  }
  return a;
}

std::vector<Sample> unfold_samples() {
  return {{.name = "uneven",
           .inputs = {{{2, 3, 5, 4}, kFloat64}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{unfold(in[0], {3, 2}, {.stride = 2})};
               }},
          {.name = "no batch, padded", .inputs = {{{1, 3, 5}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{unfold(in[0], 2, {.dilation = 2, .padding = 1})};
           }}};
}
std::vector<Sample> fold_samples() {
  return {{.name = "uneven",
           .inputs = {{{1, 12, 5}, kFloat64}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{fold(in[0], {6, 2}, 2)};
               }},
          {.name = "no batch, padded", .inputs = {{{4, 12}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{fold(in[0], {3, 2}, 2, {.padding = 1})};
           }}};
}

}  // namespace
}  // namespace image

constinit OperatorDef unfold_op = {
    .name = "unfold",
    .signature = "unfold(x, kernel_size, dilation, padding, stride) -> Tensor",
    .attributes = attribute_codec<image::UnfoldAttrs>(),
    .infer = image::unfold_infer,
    .rule = image::rule,
    .kernel = DTORCH_KERNEL(image::unfold_kernel),
    .gradient = image::gradient<fold_op>,
    .samples = image::unfold_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef fold_op = {
    .name = "fold",
    .signature = "fold(x, output_size, kernel_size, dilation, padding, stride) -> Tensor",
    .attributes = attribute_codec<image::UnfoldAttrs>(),
    .infer = image::fold_infer,
    .rule = image::rule,
    .kernel = DTORCH_KERNEL(image::fold_kernel),
    .gradient = image::gradient<unfold_op>,
    .samples = image::fold_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};

Tensor unfold(const Tensor& given, const Extents& kernel_size, const UnfoldOptions& options, Where where) {
  const SourceScope scope(where);
  const int64_t h = image::has_batch("unfold", given, 4, where) ? 2 : 1;
  const Shape& shape = given.shape();
  const image::UnfoldAttrs a = image::make_attributes("unfold", {shape[h], shape[h + 1]}, kernel_size, options, where);
  Tensor x = given;
  for (int64_t dim : {h, h + 1}) x = shaping::gather_dim("unfold", x, dim, where);
  return record(unfold_op, a, {&x}, where);
}

Tensor fold(const Tensor& given, const Extents& output_size, const Extents& kernel_size, const UnfoldOptions& options,
            Where where) {
  const SourceScope scope(where);
  const int64_t channels = image::has_batch("fold", given, 3, where) ? 1 : 0;
  const image::UnfoldAttrs a = image::make_attributes(
      "fold", image::spread("fold", "output_size", output_size, 2, 1, where), kernel_size, options, where);
  const int64_t elements = a.num_elements();
  const Shape& shape = given.shape();
  if (shape[channels] % elements != 0 || shape.back() != a.num_windows()) {
    throw at_line(ShapeError("[fold] x has shape " + given.shape().str() + ", expected [N, C * " +
                             std::to_string(elements) + ", " + std::to_string(a.num_windows()) + "]"),
                  where);
  }
  const Tensor x = shaping::gather_dim("fold", given, channels + 1, where);
  return record(fold_op, a, {&x}, where);
}

}  // namespace dtorch
