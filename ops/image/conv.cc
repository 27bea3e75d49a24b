// conv1d, conv2d, conv_transpose1d and conv_transpose2d: y[n, k] = sum over c, r of x[n, c, stride o + dilation r -
// padding] w[k, c, r] + bias[k]; transposed: the adjoint of that in x. Layouts: conv_rules.cc; spatial dims of x that
// are sharded: halo.h (transposed: gathered). The kernel convolves this device's part; with groups, as many of them as
// the part has. Gradients: of x (conv_input_grad) and of the weight (conv_weight_grad), each linear in both inputs;
// of the bias: g summed.
#include "ops/image/conv.h"

#include <algorithm>

#include "ops/image/halo.h"
#include "ops/math/functions.h"
#include "ops/shape/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace image {
namespace {

std::vector<Tensor> conv_gradient(const GradientContext& context) {
  const auto& a = context.attributes<ConvAttrs>();
  const Tensor& g = context.grad_output(0);
  const Where where = Where::current();
  std::vector<Tensor> gradients(context.num_inputs());
  if (context.needs_grad(0)) {
    const Tensor weight = context.input(1);
    gradients[0] = record(conv_input_grad_op, a, {&g, &weight}, where);
  }
  if (context.needs_grad(1)) {
    const Tensor x = context.input(0);
    gradients[1] = record(conv_weight_grad_op, a, {&g, &x}, where);
  }
  if (a.has_bias && context.needs_grad(2)) {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < g.ndim(); ++d) {
      if (d != a.channel_dim()) dims.push_back(d);
    }
    gradients[2] = sum_pending(g, dims);
  }
  return gradients;
}

#if DTORCH_WITH_KERNELS
// Rows of a cut dim that this device's part of the result, `out` rows, reads.
int64_t rows_read(const ConvAttrs& a, size_t s, int64_t out) { return (out - 1) * a.stride[s] + a.extent(s); }

// x without the rows of cut dims that aren't read.
at::Tensor read_part(const ConvAttrs& a, at::Tensor x, at::IntArrayRef out_sizes) {
  for (size_t s = 0; s < a.cut.size(); ++s) {
    if (a.cut[s] != 0) x = x.narrow(static_cast<int64_t>(s) + 2, 0, rows_read(a, s, out_sizes[s + 2]));
  }
  return x;
}

// Groups of which this device has channels, `local` of `all`.
int64_t local_groups(const ConvAttrs& a, int64_t local, int64_t all) {
  return a.groups == 1 ? 1 : local * a.groups / all;
}

// LibTorch's functions want a batch.
at::Tensor with_batch(const ConvAttrs& a, const at::Tensor& x) { return a.batched ? x : x.unsqueeze(0); }
std::vector<int64_t> with_batch(const ConvAttrs& a, at::IntArrayRef given) {
  std::vector<int64_t> sizes = given.vec();
  if (!a.batched) sizes.insert(sizes.begin(), 1);
  return sizes;
}
void set_result(KernelContext& context, const ConvAttrs& a, const at::Tensor& result) {
  set_output(context, 0, a.batched ? result : result.squeeze(0));
}

void conv_kernel(KernelContext& context) {
  const auto& a = context.attributes<ConvAttrs>();
  const at::Tensor x = with_batch(a, input(context, 0)), weight = input(context, 1);
  const std::vector<int64_t> sizes = with_batch(a, output_sizes(context, 0));
  std::optional<at::Tensor> bias;
  if (a.has_bias) bias = input(context, 2);
  if (context.output_box(0).empty() || weight.numel() == 0) {
    at::Tensor out = at::zeros(sizes, x.options());
    std::vector<int64_t> channels(sizes.size(), 1);
    channels[1] = -1;
    if (bias && out.numel() > 0) out.add_(bias->view(channels));
    return set_result(context, a, out);
  }
  const int64_t groups = local_groups(a, weight.size(0), a.transposed ? a.in_channels : a.out_channels);
  set_result(context, a,
             at::convolution(read_part(a, x, sizes), weight, bias, a.stride, a.padding, a.dilation, a.transposed,
                             a.output_padding, groups));
}

void input_grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<ConvAttrs>();
  const at::Tensor g = with_batch(a, input(context, 0)), weight = input(context, 1);
  const std::vector<int64_t> sizes = with_batch(a, output_sizes(context, 0));
  if (g.numel() == 0 || weight.numel() == 0) return set_result(context, a, at::zeros(sizes, g.options()));
  const int64_t groups = local_groups(a, weight.size(0), a.transposed ? a.in_channels : a.out_channels);
  const bool cut = std::ranges::any_of(a.cut, [](int64_t c) { return c != 0; });
  // Its values aren't read, and its sizes are.
  const at::Tensor dx = cut ? at::zeros(sizes, g.options()) : at::empty(sizes, g.options());
  const at::Tensor part = read_part(a, dx, g.sizes());
  const at::Tensor grad =
      std::get<0>(at::convolution_backward(g, part, weight, at::OptionalIntArrayRef(), a.stride, a.padding, a.dilation,
                                           a.transposed, a.output_padding, groups, {true, false, false}));
  if (!cut) return set_result(context, a, grad);
  part.copy_(grad);
  set_result(context, a, dx);
}

void weight_grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<ConvAttrs>();
  const at::Tensor g = with_batch(a, input(context, 0)), x = with_batch(a, input(context, 1));
  const at::IntArrayRef sizes = output_sizes(context, 0);
  if (g.numel() == 0 || x.numel() == 0) return set_output(context, 0, at::zeros(sizes, g.options()));
  const int64_t groups = local_groups(a, x.size(1), a.in_channels);
  const at::Tensor weight = at::empty(sizes, g.options());
  set_output(context, 0,
             std::get<1>(at::convolution_backward(g, read_part(a, x, g.sizes()), weight, at::OptionalIntArrayRef(),
                                                  a.stride, a.padding, a.dilation, a.transposed, a.output_padding,
                                                  groups, {false, true, false})));
}
#endif

struct ConvCall {
  const OperatorDef& op;
  size_t num_spatial;
  bool transposed;
};

ConvAttrs make_attributes(const ConvCall& call, const Tensor& x, const Tensor& weight,
                          const ConvTransposeOptions& options, const Where& where) {
  const size_t n = call.num_spatial;
  const char* op = call.op.name;
  ConvAttrs a;
  a.stride = spread(op, "stride", options.stride, n, 1, where);
  a.padding = spread(op, "padding", options.padding, n, 0, where);
  a.dilation = spread(op, "dilation", options.dilation, n, 1, where);
  a.output_padding = spread(op, "output_padding", options.output_padding, n, 0, where);
  a.cut.assign(n, 0);
  a.groups = options.groups;
  a.transposed = call.transposed;
  a.batched = has_batch(op, x, static_cast<int64_t>(n) + 2, where);
  const auto wrong = [&](const std::string& what) {
    return at_line(ShapeError("[" + std::string(op) + "] " + what + ": x is " + x.shape().str() + ", weight " +
                              weight.shape().str() + ", groups " + std::to_string(options.groups)),
                   where);
  };
  const Shape& ws = weight.shape();
  const int64_t channels = x.shape()[a.channel_dim()];
  if (ws.ndim() != static_cast<int64_t>(n) + 2) throw wrong("the weight must have " + std::to_string(n + 2) + " dims");
  if (a.groups < 1 || channels % a.groups != 0 || ws[0] % a.groups != 0) throw wrong("groups must divide the channels");
  a.in_channels = channels;
  a.out_channels = a.transposed ? ws[1] * a.groups : ws[0];
  if (a.transposed ? ws[0] != channels : ws[1] * a.groups != channels) {
    throw wrong(a.transposed ? "the weight's dim 0 must be x's channels"
                             : "the weight's dim 1 must be x's channels / groups");
  }
  if (a.in_channels == 0 || a.out_channels == 0) throw wrong("there must be channels");
  for (size_t s = 0; s < n; ++s) {
    const int64_t in = x.shape()[a.dim_of(s)];
    a.in.push_back(in);
    a.kernel.push_back(ws[static_cast<int64_t>(s) + 2]);
    if (a.kernel[s] < 1) throw wrong("the kernel is empty");
    if (a.transposed) {
      if (a.output_padding[s] >= std::max(a.stride[s], a.dilation[s]))
        throw wrong("output_padding must be less than stride or dilation");
      a.out.push_back((in - 1) * a.stride[s] - 2 * a.padding[s] + a.extent(s) + a.output_padding[s]);
    } else {
      const int64_t free = in + 2 * a.padding[s] - a.extent(s);
      a.out.push_back(free < 0 ? 0 : free / a.stride[s] + 1);
    }
    if (a.out[s] < 1)
      throw wrong("the kernel doesn't fit into x with its padding in dim " + std::to_string(a.dim_of(s)));
  }
  return a;
}

Tensor convolve(const ConvCall& call, const Tensor& given, const Tensor& weight, const Tensor& bias,
                const ConvTransposeOptions& options, const Where& where) {
  const SourceScope scope(where);
  const char* op = call.op.name;
  Tensor x = given;
  ConvAttrs a = make_attributes(call, x, weight, options, where);
  a.has_bias = bias.defined();
  if (a.has_bias && bias.shape() != Shape{a.out_channels}) {
    throw at_line(ShapeError("[" + std::string(op) + "] bias has shape " + bias.shape().str() + ", expected " +
                             Shape{a.out_channels}.str()),
                  where);
  }
  for (size_t s = 0; s < call.num_spatial; ++s) {
    const int64_t dim = a.dim_of(s);
    if (x.layout().axes_of_dim(dim).empty()) continue;
    if (a.transposed) {
      x = shaping::gather_dim(op, x, dim, where);
      continue;
    }
    const auto rows = [&](int64_t o) {
      const int64_t first = o * a.stride[s] - a.padding[s];
      return std::pair(first, first + a.extent(s));
    };
    x = with_halo(op, x, dim, {a.out[s], rows}, 0, where);
    a.cut[s] = 1;
    a.in[s] = x.shape()[dim];
  }
  for (size_t s = 0; s < call.num_spatial; ++s) {
    if (a.cut[s] != 0) a.padding[s] = 0;
  }
  std::vector<Tensor> inputs = {x, weight};
  if (a.has_bias) inputs.push_back(bias);
  return record_list(call.op, a, inputs, 1, where)[0];
}

std::vector<Sample> conv1d_samples() {
  return {{.name = "uneven, padded, dilated",
           .inputs = {{{2, 3, 7}, kFloat64}, {{5, 3, 3}, kFloat64}, {{5}, kFloat64}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{conv1d(in[0], in[1], in[2], {.padding = 2, .dilation = 2})};
               }},
          {.name = "no batch, kernel 1",
           .inputs = {{{4, 5}}, {{1, 4, 1}}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{conv1d(in[0], in[1])}; }},
          {.name = "depthwise, parts smaller than the halo",
           .inputs = {{{1, 3, 5}}, {{3, 1, 5}}, {{3}}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{conv1d(in[0], in[1], in[2], {.padding = 2, .groups = 3})};
               }},
          {.name = "groups",
           .inputs = {{{2, 4, 6}, kFloat64}, {{8, 2, 2}, kFloat64}},
           .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{conv1d(in[0], in[1], {}, {.stride = 2, .groups = 2})};
           }}};
}
std::vector<Sample> conv2d_samples() {
  return {
      {.name = "uneven, padded",
       .inputs = {{{2, 3, 5, 4}, kFloat64}, {{5, 3, 3, 2}, kFloat64}, {{5}, kFloat64}},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{conv2d(in[0], in[1], in[2], {.padding = {1, 0}})};
           }},
      {.name = "kernel and stride 2",
       .inputs = {{{1, 4, 6, 8}}, {{2, 4, 2, 2}}},
       .call =
           [](const std::vector<Tensor>& in) { return std::vector<Tensor>{conv2d(in[0], in[1], {}, {.stride = 2})}; }},
      {.name = "stride greater than the kernel, groups",
       .inputs = {{{1, 4, 7, 1}}, {{4, 2, 1, 1}}},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{conv2d(in[0], in[1], {}, {.stride = {3, 1}, .groups = 2})};
           }},
      {.name = "no batch elements",
       .inputs = {{{0, 2, 3, 3}}, {{2, 2, 2, 2}}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{conv2d(in[0], in[1])}; }}};
}
std::vector<Sample> conv_transpose1d_samples() {
  return {{.name = "uneven",
           .inputs = {{{2, 3, 5}, kFloat64}, {{3, 5, 3}, kFloat64}, {{5}, kFloat64}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{
                     conv_transpose1d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .output_padding = 1})};
               }},
          {.name = "no batch, groups", .inputs = {{{4, 5}}, {{4, 1, 2}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{conv_transpose1d(in[0], in[1], {}, {.groups = 2})};
           }}};
}
std::vector<Sample> conv_transpose2d_samples() {
  return {
      {.name = "uneven",
       .inputs = {{{2, 3, 5, 1}, kFloat64}, {{3, 5, 2, 3}, kFloat64}, {{5}, kFloat64}},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{conv_transpose2d(in[0], in[1], in[2], {.stride = {2, 1}, .dilation = {1, 2}})};
           }},
      {.name = "groups", .inputs = {{{1, 4, 3, 2}}, {{4, 1, 2, 2}}}, .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{conv_transpose2d(in[0], in[1], {}, {.groups = 4})};
       }}};
}

}  // namespace
}  // namespace image

constinit OperatorDef conv1d_op = {
    .name = "conv1d",
    .signature = "conv1d(x, weight, bias, stride, padding, dilation, groups) -> Tensor",
    .attributes = attribute_codec<image::ConvAttrs>(),
    .infer = image::conv_infer,
    .rule = image::conv_rule,
    .kernel = DTORCH_KERNEL(image::conv_kernel),
    .gradient = image::conv_gradient,
    .samples = image::conv1d_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "(x, bias), (weight, bias)",
    .saved_inputs = 3,
};
constinit OperatorDef conv2d_op = {
    .name = "conv2d",
    .signature = "conv2d(x, weight, bias, stride, padding, dilation, groups) -> Tensor",
    .attributes = attribute_codec<image::ConvAttrs>(),
    .infer = image::conv_infer,
    .rule = image::conv_rule,
    .kernel = DTORCH_KERNEL(image::conv_kernel),
    .gradient = image::conv_gradient,
    .samples = image::conv2d_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "(x, bias), (weight, bias)",
    .saved_inputs = 3,
};
constinit OperatorDef conv_transpose1d_op = {
    .name = "conv_transpose1d",
    .signature = "conv_transpose1d(x, weight, bias, stride, padding, output_padding, groups, dilation) -> Tensor",
    .attributes = attribute_codec<image::ConvAttrs>(),
    .infer = image::conv_infer,
    .rule = image::conv_rule,
    .kernel = DTORCH_KERNEL(image::conv_kernel),
    .gradient = image::conv_gradient,
    .samples = image::conv_transpose1d_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "(x, bias), (weight, bias)",
    .saved_inputs = 3,
};
constinit OperatorDef conv_transpose2d_op = {
    .name = "conv_transpose2d",
    .signature = "conv_transpose2d(x, weight, bias, stride, padding, output_padding, groups, dilation) -> Tensor",
    .attributes = attribute_codec<image::ConvAttrs>(),
    .infer = image::conv_infer,
    .rule = image::conv_rule,
    .kernel = DTORCH_KERNEL(image::conv_kernel),
    .gradient = image::conv_gradient,
    .samples = image::conv_transpose2d_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "(x, bias), (weight, bias)",
    .saved_inputs = 3,
};
constinit OperatorDef conv_input_grad_op = {
    .name = "conv_input_grad",
    .signature = "conv_grad(g, weight, x's sizes) -> dx",
    .attributes = attribute_codec<image::ConvAttrs>(),
    .infer = image::conv_input_grad_infer,
    .rule = image::conv_input_grad_rule,
    .kernel = DTORCH_KERNEL(image::input_grad_kernel),
    .linear_in = "each",
};
constinit OperatorDef conv_weight_grad_op = {
    .name = "conv_weight_grad",
    .signature = "conv_grad(g, x, kernel sizes) -> dweight",
    .attributes = attribute_codec<image::ConvAttrs>(),
    .infer = image::conv_weight_grad_infer,
    .rule = image::conv_weight_grad_rule,
    .kernel = DTORCH_KERNEL(image::weight_grad_kernel),
    .linear_in = "each",
};

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options, Where where) {
  return image::convolve(
      {conv1d_op, 1, false}, x, weight, bias,
      {.stride = options.stride, .padding = options.padding, .groups = options.groups, .dilation = options.dilation},
      where);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options, Where where) {
  return image::convolve(
      {conv2d_op, 2, false}, x, weight, bias,
      {.stride = options.stride, .padding = options.padding, .groups = options.groups, .dilation = options.dilation},
      where);
}
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options,
                        Where where) {
  return image::convolve({conv_transpose1d_op, 1, true}, x, weight, bias, options, where);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& options,
                        Where where) {
  return image::convolve({conv_transpose2d_op, 2, true}, x, weight, bias, options, where);
}

}  // namespace dtorch
