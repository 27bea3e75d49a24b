// softplus(x) = log(1 + exp(beta x)) / beta, elu, selu, celu, leaky_relu, prelu: functions that bend at 0. Layouts:
// same on every dim; elu and leaky_relu are increasing, so that Partial(max) and Partial(min) pass, unless their
// numbers turn the slope below 0; softplus isn't quite, where it changes to x itself; prelu is affine in its weight, so
// that its Partial(avg) passes. selu and celu are elu with other numbers. The gradients (elu_gradient, ...) are
// operators of their own, linear in g, so that a pending gradient stays pending; prelu's are where(x > 0, g, g weight)
// and where(x > 0, 0, g x).
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/_prelu_kernel.h>
#include <ATen/ops/_prelu_kernel_native.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/elu_backward_cpu_dispatch.h>
#include <ATen/ops/elu_cpu_dispatch.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/leaky_relu_backward_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_cpu_dispatch.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/softplus_backward_cpu_dispatch.h>
#include <ATen/ops/softplus_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef softplus_gradient_op, elu_gradient_op, leaky_relu_gradient_op;

namespace {

using namespace math;

struct SoftplusAttrs {
  double beta = 1, threshold = 20;
  template <class V>
  void fields(V& v) {
    v("beta", beta);
    v("threshold", threshold);
  }
};
// scale x above 0, scale alpha (exp(input_scale x) - 1) below.
struct EluAttrs {
  double alpha = 1, scale = 1, input_scale = 1;
  template <class V>
  void fields(V& v) {
    v("alpha", alpha);
    v("scale", scale);
    v("input_scale", input_scale);
  }
};
struct LeakyAttrs {
  double negative_slope = 0;
  template <class V>
  void fields(V& v) {
    v("negative_slope", negative_slope);
  }
};

std::vector<OutputMeta> prelu_infer(const InferContext& context) {
  need_one_dtype(context);
  std::vector<OutputMeta> outputs = infer_needs_floating(context);
  if (broadcast_inputs(context) != outputs[0].global_shape) {
    throw ShapeError("[prelu_aligned] the weight doesn't fit " + context.shape(0).str());
  }
  return outputs;
}

Rule elu_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const auto& attributes = context.attributes<EluAttrs>();
  const bool increasing = attributes.scale >= 0 && attributes.alpha * attributes.input_scale >= 0;
  return increasing ? monotone_rule<Monotone::kUp>(context, outputs) : elementwise(context, outputs, Linear::kNo);
}
Rule leaky_relu_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const bool increasing = context.attributes<LeakyAttrs>().negative_slope >= 0;
  return increasing ? monotone_rule<Monotone::kUp>(context, outputs) : elementwise(context, outputs, Linear::kNo);
}
Rule prelu_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, Linear::kNo);
  add_partial_row(&rule, {1}, kAvg, kAvg);
  return rule;
}

std::vector<Tensor> prelu_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Tensor x = context.input(0), weight = context.input(1);
  const Tensor above = gt(x, 0);
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) gradients[0] = where(above, g, mul(g, weight));
  if (context.needs_grad(1)) gradients[1] = fit_gradient(where(above, 0, mul(g, x)), context.input_meta(1));
  return gradients;
}

#if DTORCH_WITH_KERNELS
void softplus_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<SoftplusAttrs>();
  set_output(context, 0, DTORCH_ATEN(softplus)(input(context, 0), attributes.beta, attributes.threshold));
}
void softplus_gradient_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<SoftplusAttrs>();
  set_output(
      context, 0,
      DTORCH_ATEN(softplus_backward)(input(context, 0), input(context, 1), attributes.beta, attributes.threshold));
}
void elu_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<EluAttrs>();
  set_output(context, 0,
             DTORCH_ATEN(elu)(input(context, 0), attributes.alpha, attributes.scale, attributes.input_scale));
}
void elu_gradient_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<EluAttrs>();
  set_output(context, 0,
             DTORCH_ATEN(elu_backward)(input(context, 0), attributes.alpha, attributes.scale, attributes.input_scale,
                                       /*is_result=*/false, input(context, 1)));
}
void leaky_relu_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(leaky_relu)(input(context, 0), context.attributes<LeakyAttrs>().negative_slope));
}
void leaky_relu_gradient_kernel(KernelContext& context) {
  set_output(
      context, 0,
      DTORCH_ATEN(leaky_relu_backward)(input(context, 0), input(context, 1),
                                       context.attributes<LeakyAttrs>().negative_slope, /*self_is_result=*/false));
}
void prelu_kernel(KernelContext& context) {
  set_output(context, 0,
             DTORCH_BY_DEVICE(at::native::_prelu_kernel, at::_prelu_kernel)(input(context, 0), input(context, 1)));
}
#endif

std::vector<Sample> softplus_samples() {
  return activation_samples([](const Tensor& x, Where where) { return softplus(x, 2, 1.5, where); });
}
std::vector<Sample> elu_samples() {
  std::vector<Sample> samples = activation_samples([](const Tensor& x, Where where) { return elu(x, 0.7, where); });
  samples.push_back({.name = "negative alpha", .inputs = {normal({5, 1})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{elu(in[0], -0.5)};
                     }});
  return samples;
}
std::vector<Sample> selu_samples() { return activation_samples(selu); }
std::vector<Sample> celu_samples() {
  return activation_samples([](const Tensor& x, Where where) { return celu(x, 0.7, where); });
}
std::vector<Sample> leaky_relu_samples() {
  std::vector<Sample> samples =
      activation_samples([](const Tensor& x, Where where) { return leaky_relu(x, 0.1, where); });
  samples.push_back({.name = "negative slope", .inputs = {normal({5, 1})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{leaky_relu(in[0], -0.5)};
                     }});
  return samples;
}
std::vector<Sample> prelu_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{prelu(in[0], in[1])}; };
  return {{.name = "a weight a channel", .inputs = {normal({5, 3}), normal({3})}, .call = call},
          {.name = "images", .inputs = {normal({2, 5, 1, 3}, kFloat64), normal({5}, kFloat64)}, .call = call},
          {.name = "one weight, empty", .inputs = {normal({0, 3}), normal({1})}, .call = call}};
}

}  // namespace

constinit OperatorDef softplus_op = {
    .name = "softplus",
    .signature = "softplus(x, beta, threshold) -> Tensor",
    .attributes = attribute_codec<SoftplusAttrs>(),
    .infer = infer_needs_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(softplus_kernel),
    .gradient = gradient_from_input<softplus_gradient_op, SoftplusAttrs>,
    .samples = softplus_samples,
};
constinit OperatorDef elu_op = {
    .name = "elu",
    .signature = "elu(x, alpha) -> Tensor",
    .attributes = attribute_codec<EluAttrs>(),
    .infer = infer_needs_floating,
    .rule = elu_rule,
    .kernel = DTORCH_KERNEL(elu_kernel),
    .gradient = gradient_from_input<elu_gradient_op, EluAttrs>,
    .samples = elu_samples,
};
constinit OperatorDef leaky_relu_op = {
    .name = "leaky_relu",
    .signature = "leaky_relu(x, negative_slope) -> Tensor",
    .attributes = attribute_codec<LeakyAttrs>(),
    .infer = infer_needs_floating,
    .rule = leaky_relu_rule,
    .kernel = DTORCH_KERNEL(leaky_relu_kernel),
    .gradient = gradient_from_input<leaky_relu_gradient_op, LeakyAttrs>,
    .samples = leaky_relu_samples,
};
constinit OperatorDef prelu_aligned_op = {
    .name = "prelu_aligned",
    .signature = "prelu(x, weight) -> Tensor",
    .infer = prelu_infer,
    .rule = prelu_rule,
    .kernel = DTORCH_KERNEL(prelu_kernel),
    .gradient = prelu_gradient,
};
// Compositions.
constinit OperatorDef prelu_op = {.name = "prelu", .signature = "prelu(x, weight) -> Tensor", .samples = prelu_samples};
constinit OperatorDef selu_op = {.name = "selu", .signature = "selu(x) -> Tensor", .samples = selu_samples};
constinit OperatorDef celu_op = {.name = "celu", .signature = "celu(x, alpha) -> Tensor", .samples = celu_samples};

constinit OperatorDef softplus_gradient_op = {
    .name = "softplus_gradient",
    .signature = "softplus_gradient(g, x, beta, threshold) -> Tensor",
    .attributes = attribute_codec<SoftplusAttrs>(),
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(softplus_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef elu_gradient_op = {
    .name = "elu_gradient",
    .signature = "elu_gradient(g, x, alpha, scale, input_scale) -> Tensor",
    .attributes = attribute_codec<EluAttrs>(),
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(elu_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef leaky_relu_gradient_op = {
    .name = "leaky_relu_gradient",
    .signature = "leaky_relu_gradient(g, x, negative_slope) -> Tensor",
    .attributes = attribute_codec<LeakyAttrs>(),
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(leaky_relu_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

Tensor softplus(const Tensor& x, double beta, double threshold, Where where) {
  return record(softplus_op, SoftplusAttrs{beta, threshold}, {&x}, where);
}
Tensor elu(const Tensor& x, double alpha, Where where) { return record(elu_op, EluAttrs{alpha}, {&x}, where); }
// alpha and scale for which activations keep mean 0 and variance 1: Klambauer et al., Self-Normalizing Neural Networks,
// 2017.
Tensor selu(const Tensor& x, Where where) {
  return record(elu_op, EluAttrs{1.6732632423543772848170429916717, 1.0507009873554804934193349852946}, {&x}, where);
}
Tensor celu(const Tensor& x, double alpha, Where where) {
  if (alpha == 0) throw at_line(UserError("[celu] alpha is 0, must not be"), where);
  return record(elu_op, EluAttrs{alpha, 1, 1 / alpha}, {&x}, where);
}
Tensor leaky_relu(const Tensor& x, double negative_slope, Where where) {
  return record(leaky_relu_op, LeakyAttrs{negative_slope}, {&x}, where);
}
Tensor prelu(const Tensor& x, const Tensor& weight, Where where) {
  const int64_t channels = x.ndim() > 1 ? x.size(1) : 1;
  if (weight.ndim() > 1 || (weight.numel() != 1 && weight.numel() != channels)) {
    throw at_line(ShapeError("[prelu] weight has the shape " + weight.shape().str() + ", must be [1] or [" +
                             std::to_string(channels) + "], the channels of " + x.shape().str()),
                  where);
  }
  Tensor aligned = weight;
  if (x.ndim() == 0 && weight.ndim() == 1) aligned = squeeze(aligned, 0, where);
  for (int64_t d = 2; d < x.ndim() && weight.ndim() == 1; ++d) aligned = unsqueeze(aligned, -1, where);
  return record(prelu_aligned_op, NoAttrs{}, {&x, &aligned}, where);
}

}  // namespace dtorch
