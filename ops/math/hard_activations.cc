// hardtanh (relu6 is one), hardsigmoid, hardswish, hardshrink, softshrink, threshold: functions made of straight
// pieces. Layouts: same on every dim; all but hardswish are non-decreasing, so that Partial(max) and Partial(min) pass
// (threshold when value <= threshold, hardshrink when lambd >= 0). The gradients (hardtanh_gradient, ...) are operators
// of their own, linear in g, so that a pending gradient stays pending.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/hardshrink.h>
#include <ATen/ops/hardshrink_backward.h>
#include <ATen/ops/hardshrink_backward_cpu_dispatch.h>
#include <ATen/ops/hardshrink_cpu_dispatch.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardsigmoid_backward.h>
#include <ATen/ops/hardsigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/hardsigmoid_cpu_dispatch.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardswish_backward.h>
#include <ATen/ops/hardswish_backward_native.h>
#include <ATen/ops/hardswish_native.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/hardtanh_backward.h>
#include <ATen/ops/hardtanh_backward_native.h>
#include <ATen/ops/hardtanh_native.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/softshrink_backward.h>
#include <ATen/ops/softshrink_backward_cpu_dispatch.h>
#include <ATen/ops/softshrink_cpu_dispatch.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>
#include <ATen/ops/threshold_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef hardtanh_gradient_op, hardsigmoid_gradient_op, hardswish_gradient_op, hardshrink_gradient_op,
    softshrink_gradient_op, threshold_gradient_op;

namespace {

using namespace math;

struct RangeAttrs {
  double min_val = -1, max_val = 1;
  template <class V>
  void fields(V& v) {
    v("min_val", min_val);
    v("max_val", max_val);
  }
};
struct ShrinkAttrs {
  double lambd = 0.5;
  template <class V>
  void fields(V& v) {
    v("lambd", lambd);
  }
};
struct ThresholdAttrs {
  double threshold = 0, value = 0;
  template <class V>
  void fields(V& v) {
    v("threshold", threshold);
    v("value", value);
  }
};

std::vector<OutputMeta> infer_no_bool(const InferContext& context) {
  refuse_bool(context);
  return infer_same(context);
}

Rule hardshrink_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const bool increasing = context.attributes<ShrinkAttrs>().lambd >= 0;
  return increasing ? monotone_rule<Monotone::kUp>(context, outputs) : elementwise(context, outputs, Linear::kNo);
}
Rule threshold_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const auto& attributes = context.attributes<ThresholdAttrs>();
  const bool increasing = attributes.value <= attributes.threshold;
  return increasing ? monotone_rule<Monotone::kUp>(context, outputs) : elementwise(context, outputs, Linear::kNo);
}

#if DTORCH_WITH_KERNELS
void hardtanh_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RangeAttrs>();
  set_output(
      context, 0,
      DTORCH_BY_DEVICE(at::native::hardtanh, at::hardtanh)(input(context, 0), attributes.min_val, attributes.max_val));
}
void hardtanh_gradient_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RangeAttrs>();
  set_output(context, 0,
             DTORCH_BY_DEVICE(at::native::hardtanh_backward, at::hardtanh_backward)(
                 input(context, 0), input(context, 1), attributes.min_val, attributes.max_val));
}
void hardsigmoid_gradient_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(hardsigmoid_backward)(input(context, 0), input(context, 1)));
}
void hardswish_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_BY_DEVICE(at::native::hardswish, at::hardswish)(input(context, 0)));
}
void hardswish_gradient_kernel(KernelContext& context) {
  set_output(
      context, 0,
      DTORCH_BY_DEVICE(at::native::hardswish_backward, at::hardswish_backward)(input(context, 0), input(context, 1)));
}
void hardshrink_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(hardshrink)(input(context, 0), context.attributes<ShrinkAttrs>().lambd));
}
void hardshrink_gradient_kernel(KernelContext& context) {
  const double lambd = context.attributes<ShrinkAttrs>().lambd;
  set_output(context, 0, DTORCH_ATEN(hardshrink_backward)(input(context, 0), input(context, 1), lambd));
}
void softshrink_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(softshrink)(input(context, 0), context.attributes<ShrinkAttrs>().lambd));
}
void softshrink_gradient_kernel(KernelContext& context) {
  const double lambd = context.attributes<ShrinkAttrs>().lambd;
  set_output(context, 0, DTORCH_ATEN(softshrink_backward)(input(context, 0), input(context, 1), lambd));
}
void threshold_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ThresholdAttrs>();
  set_output(context, 0, DTORCH_ATEN(threshold)(input(context, 0), attributes.threshold, attributes.value));
}
void threshold_gradient_kernel(KernelContext& context) {
  const double threshold = context.attributes<ThresholdAttrs>().threshold;
  set_output(context, 0, DTORCH_ATEN(threshold_backward)(input(context, 0), input(context, 1), threshold));
}
#endif

std::vector<Sample> hardtanh_samples() {
  std::vector<Sample> samples =
      activation_samples([](const Tensor& x, Where where) { return hardtanh(x, -0.5, 0.7, where); });
  samples.push_back({.name = "integers", .inputs = {integers({7})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{hardtanh(in[0], -1, 2)};
                     }});
  return samples;
}
std::vector<Sample> relu6_samples() { return activation_samples(relu6); }
std::vector<Sample> hardsigmoid_samples() { return activation_samples(hardsigmoid); }
std::vector<Sample> hardswish_samples() { return activation_samples(hardswish); }
std::vector<Sample> hardshrink_samples() {
  return activation_samples([](const Tensor& x, Where where) { return hardshrink(x, 0.6, where); });
}
std::vector<Sample> softshrink_samples() {
  return activation_samples([](const Tensor& x, Where where) { return softshrink(x, 0.6, where); });
}
std::vector<Sample> threshold_samples() {
  std::vector<Sample> samples =
      activation_samples([](const Tensor& x, Where where) { return threshold(x, 0.2, -1, where); });
  samples.push_back({.name = "a step up below, integers",
                     .inputs = {normal({5, 1}), integers({7})},
                     .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{threshold(in[0], 0.1, 2), threshold(in[1], 1, 20)};
                     }});
  return samples;
}

}  // namespace

constinit OperatorDef hardtanh_op = {
    .name = "hardtanh",
    .signature = "hardtanh(x, min_val, max_val) -> Tensor",
    .attributes = attribute_codec<RangeAttrs>(),
    .infer = infer_no_bool,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(hardtanh_kernel),
    .gradient = gradient_from_input<hardtanh_gradient_op, RangeAttrs>,
    .samples = hardtanh_samples,
};
// A composition.
constinit OperatorDef relu6_op = {.name = "relu6", .signature = "relu6(x) -> Tensor", .samples = relu6_samples};
constinit OperatorDef hardsigmoid_op = {
    .name = "hardsigmoid",
    .signature = "hardsigmoid(x) -> Tensor",
    .infer = infer_needs_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(hardsigmoid), DTORCH_ATEN(hardsigmoid_outf)>),
    .gradient = gradient_from_input<hardsigmoid_gradient_op>,
    .samples = hardsigmoid_samples,
};
constinit OperatorDef hardswish_op = {
    .name = "hardswish",
    .signature = "hardswish(x) -> Tensor",
    .infer = infer_needs_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(hardswish_kernel),
    .gradient = gradient_from_input<hardswish_gradient_op>,
    .samples = hardswish_samples,
};
constinit OperatorDef hardshrink_op = {
    .name = "hardshrink",
    .signature = "hardshrink(x, lambd) -> Tensor",
    .attributes = attribute_codec<ShrinkAttrs>(),
    .infer = infer_needs_floating,
    .rule = hardshrink_rule,
    .kernel = DTORCH_KERNEL(hardshrink_kernel),
    .gradient = gradient_from_input<hardshrink_gradient_op, ShrinkAttrs>,
    .samples = hardshrink_samples,
};
constinit OperatorDef softshrink_op = {
    .name = "softshrink",
    .signature = "softshrink(x, lambd) -> Tensor",
    .attributes = attribute_codec<ShrinkAttrs>(),
    .infer = infer_needs_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(softshrink_kernel),
    .gradient = gradient_from_input<softshrink_gradient_op, ShrinkAttrs>,
    .samples = softshrink_samples,
};
constinit OperatorDef threshold_op = {
    .name = "threshold",
    .signature = "threshold(x, threshold, value) -> Tensor",
    .attributes = attribute_codec<ThresholdAttrs>(),
    .infer = infer_no_bool,
    .rule = threshold_rule,
    .kernel = DTORCH_KERNEL(threshold_kernel),
    .gradient = gradient_from_input<threshold_gradient_op, ThresholdAttrs>,
    .samples = threshold_samples,
};

constinit OperatorDef hardtanh_gradient_op = {
    .name = "hardtanh_gradient",
    .signature = "hardtanh_gradient(g, x, min_val, max_val) -> Tensor",
    .attributes = attribute_codec<RangeAttrs>(),
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(hardtanh_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef hardsigmoid_gradient_op = {
    .name = "hardsigmoid_gradient",
    .signature = "hardsigmoid_gradient(g, x) -> Tensor",
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(hardsigmoid_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef hardswish_gradient_op = {
    .name = "hardswish_gradient",
    .signature = "hardswish_gradient(g, x) -> Tensor",
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(hardswish_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef hardshrink_gradient_op = {
    .name = "hardshrink_gradient",
    .signature = "hardshrink_gradient(g, x, lambd) -> Tensor",
    .attributes = attribute_codec<ShrinkAttrs>(),
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(hardshrink_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef softshrink_gradient_op = {
    .name = "softshrink_gradient",
    .signature = "softshrink_gradient(g, x, lambd) -> Tensor",
    .attributes = attribute_codec<ShrinkAttrs>(),
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(softshrink_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef threshold_gradient_op = {
    .name = "threshold_gradient",
    .signature = "threshold_gradient(g, x, threshold) -> Tensor",
    .attributes = attribute_codec<ThresholdAttrs>(),
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(threshold_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

Tensor hardtanh(const Tensor& x, double min_val, double max_val, Where where) {
  if (x.dtype() == kUInt8 && (min_val < 0 || max_val < 0)) {
    throw at_line(UserError("[hardtanh] uint8 has no numbers below 0; min_val is " + std::to_string(min_val) +
                            ", max_val " + std::to_string(max_val)),
                  where);
  }
  return record(hardtanh_op, RangeAttrs{min_val, max_val}, {&x}, where);
}
Tensor relu6(const Tensor& x, Where where) { return hardtanh(x, 0, 6, where); }
Tensor hardsigmoid(const Tensor& x, Where where) { return record(hardsigmoid_op, NoAttrs{}, {&x}, where); }
Tensor hardswish(const Tensor& x, Where where) { return record(hardswish_op, NoAttrs{}, {&x}, where); }
Tensor hardshrink(const Tensor& x, double lambd, Where where) {
  return record(hardshrink_op, ShrinkAttrs{lambd}, {&x}, where);
}
Tensor softshrink(const Tensor& x, double lambd, Where where) {
  if (!(lambd >= 0))
    throw at_line(UserError("[softshrink] lambd is " + std::to_string(lambd) + ", must be >= 0"), where);
  return record(softshrink_op, ShrinkAttrs{lambd}, {&x}, where);
}
Tensor threshold(const Tensor& x, double threshold, double value, Where where) {
  return record(threshold_op, ThresholdAttrs{threshold, value}, {&x}, where);
}

}  // namespace dtorch
