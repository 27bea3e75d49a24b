// floor_divide and trunc_divide (division rounded down and towards zero), fmod and remainder (what these leave: the
// sign is a's, or b's); elementwise with broadcasting, one operand may be a number. Layouts: same on every dim; nothing
// Partial. Gradients: 0 of the divisions; g and -g trunc(a / b), -g floor(a / b) of the remainders.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/div.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/fmod_cpu_dispatch.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/remainder_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef floor_divide_op, trunc_divide_op;

namespace {

using namespace math;

std::vector<Tensor> divide_gradient(const GradientContext& context) {
  std::vector<Tensor> gradients(context.num_inputs());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (context.needs_grad(i)) gradients[i] = fit_gradient(zeros_like(context.grad_output(0)), context.input_meta(i));
  }
  return gradients;
}

// kDivide: the division whose rest it is.
template <OperatorDef& kDivide>
std::vector<Tensor> rest_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<BinaryAttrs>();
  const Tensor& g = context.grad_output(0);
  if (attributes.number != kNoNumber && !attributes.reversed) return {fit_gradient(g, context.input_meta(0))};
  std::vector<Tensor> gradients(context.num_inputs());
  const size_t divisor = context.num_inputs() - 1;
  if (divisor == 1 && context.needs_grad(0)) gradients[0] = fit_gradient(g, context.input_meta(0));
  if (!context.needs_grad(divisor)) return gradients;
  Tensor quotient;
  if (divisor == 1) {
    const Tensor a = context.input(0), b = context.input(1);
    quotient = record(kDivide, BinaryAttrs{}, {&a, &b}, Where::current());
  } else {
    const Scalar scalar = context.scalar(0);
    const Tensor b = context.input(0);
    quotient = record(kDivide, attributes, {&b}, Where::current(), {.scalars = {&scalar, 1}});
  }
  gradients[divisor] = fit_gradient(mul(neg(g), quotient), context.input_meta(divisor));
  return gradients;
}

#if DTORCH_WITH_KERNELS
struct FloorDivideOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(div)(a, b, "floor"); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(div_outf)(a, b, "floor", out);
  }
};
struct TruncDivideOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(div)(a, b, "trunc"); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(div_outf)(a, b, "trunc", out);
  }
};
struct FmodOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(fmod)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(fmod_outf)(a, b, out); }
};
struct RemainderOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(remainder)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(remainder_outf)(a, b, out);
  }
};
#endif

template <Tensor (*kTensors)(const Tensor&, const Tensor&, Where), Tensor (*kNumber)(const Tensor&, Number, Where)>
std::vector<Sample> rest_samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{kTensors(in[0], in[1], Where::current())};
  };
  return {{.name = "uneven", .inputs = {normal({5, 3}), positive({5, 3})}, .call = call},
          {.name = "broadcast, size 1", .inputs = {normal({1, 3}, kFloat64), normal({4, 1}, kFloat64)}, .call = call},
          {.name = "integers", .inputs = {integers({7}), positive({7}, kInt32)}, .call = call},
          {.name = "number, empty and not",
           .inputs = {normal({5, 1}), integers({0, 2})},
           .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{kNumber(in[0], -0.7, Where::current()), kNumber(in[1], 3, Where::current()),
                                        kNumber(in[1], 1.5, Where::current())};
           }}};
}

Tensor trunc_divide(const Tensor& a, const Tensor& b, Where where) { return div(a, b, "trunc", where); }
Tensor trunc_divide_number(const Tensor& a, Number b, Where where) { return div(a, b, "trunc", where); }

std::vector<Sample> remainder_samples() {
  std::vector<Sample> samples = rest_samples<remainder, remainder>();
  samples.push_back({.name = "of a number", .inputs = {positive({5, 3})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{remainder(-2.5, in[0])};
                     }});
  return samples;
}

}  // namespace

constinit OperatorDef floor_divide_op = {
    .name = "floor_divide",
    .signature = "floor_divide(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_no_bool,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<FloorDivideOp>),
    .gradient = divide_gradient,
    .samples = rest_samples<floor_divide, floor_divide>,
    .saved_inputs = 0,
};
constinit OperatorDef trunc_divide_op = {
    .name = "trunc_divide",
    .signature = "div(a, b, \"trunc\") -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_no_bool,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<TruncDivideOp>),
    .gradient = divide_gradient,
    .samples = rest_samples<trunc_divide, trunc_divide_number>,
    .saved_inputs = 0,
};
constinit OperatorDef fmod_op = {
    .name = "fmod",
    .signature = "fmod(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_no_bool,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<FmodOp>),
    .gradient = rest_gradient<trunc_divide_op>,
    .samples = rest_samples<fmod, fmod>,
};
constinit OperatorDef remainder_op = {
    .name = "remainder",
    .signature = "remainder(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_no_bool,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<RemainderOp>),
    .gradient = rest_gradient<floor_divide_op>,
    .samples = remainder_samples,
};

namespace {
const OperatorDef& rounded_division(const std::string& rounding_mode, const Where& where) {
  if (rounding_mode == "floor") return floor_divide_op;
  if (rounding_mode == "trunc") return trunc_divide_op;
  throw at_line(UserError("[div] rounding_mode is \"" + rounding_mode + "\", allowed are \"floor\" and \"trunc\""),
                where);
}
}  // namespace

Tensor div(const Tensor& a, const Tensor& b, const std::string& rounding_mode, Where where) {
  return record_binary(rounded_division(rounding_mode, where), a, b, where);
}
Tensor div(const Tensor& a, Number b, const std::string& rounding_mode, Where where) {
  return record_with_number(rounded_division(rounding_mode, where), a, b, false, where);
}
Tensor floor_divide(const Tensor& a, const Tensor& b, Where where) {
  return record_binary(floor_divide_op, a, b, where);
}
Tensor floor_divide(const Tensor& a, Number b, Where where) {
  return record_with_number(floor_divide_op, a, b, false, where);
}
Tensor fmod(const Tensor& a, const Tensor& b, Where where) { return record_binary(fmod_op, a, b, where); }
Tensor fmod(const Tensor& a, Number b, Where where) { return record_with_number(fmod_op, a, b, false, where); }
Tensor remainder(const Tensor& a, const Tensor& b, Where where) { return record_binary(remainder_op, a, b, where); }
Tensor remainder(const Tensor& a, Number b, Where where) {
  return record_with_number(remainder_op, a, b, false, where);
}
Tensor remainder(Number a, const Tensor& b, Where where) { return record_with_number(remainder_op, b, a, true, where); }

}  // namespace dtorch
