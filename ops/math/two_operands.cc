// atan2(a, b), hypot(a, b), copysign(a, b), logaddexp(a, b) = log(exp(a) + exp(b)), xlogy(a, b) = a log(b), fmax, fmin,
// heaviside; elementwise with broadcasting. Layouts: same on every dim; xlogy is linear in a; logaddexp is increasing
// in each operand, so that Partial(max) and Partial(min) pass with the other Replicate; heaviside chooses between
// constants and `values`, whose Partial(avg, max, min) pass. Not those of fmax and fmin: a part that is NaN makes the
// value NaN, but is left out here. Gradients: g times the derivatives; none of heaviside.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/atan2.h>
#include <ATen/ops/atan2_cpu_dispatch.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/copysign_cpu_dispatch.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmax_cpu_dispatch.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/fmin_cpu_dispatch.h>
#include <ATen/ops/heaviside.h>
#include <ATen/ops/heaviside_cpu_dispatch.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/hypot_cpu_dispatch.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logaddexp_cpu_dispatch.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/xlogy_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

std::vector<OutputMeta> heaviside_infer(const InferContext& context) {
  need_one_dtype(context);
  return infer_binary(context);
}

Rule logaddexp_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, Linear::kNo);
  for (ReduceOp kind : {kMax, kMin}) {
    for (size_t i : {0, 1}) add_partial_row(&rule, {i}, kind, kind);
  }
  return rule;
}
Rule xlogy_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  return elementwise(context, outputs, context.attributes<BinaryAttrs>().reversed ? Linear::kNo : Linear::kInFirst);
}
Rule heaviside_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, Linear::kNo);
  for (ReduceOp kind : {kAvg, kMax, kMin}) add_partial_row(&rule, {1}, kind, kind);
  return rule;
}

// fit_gradient of each slope times g, computed only where a gradient is needed.
template <class A, class B>
std::vector<Tensor> gradients_of(const GradientContext& context, A of_a, B of_b) {
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) gradients[0] = fit_gradient(of_a(), context.input_meta(0));
  if (context.needs_grad(1)) gradients[1] = fit_gradient(of_b(), context.input_meta(1));
  return gradients;
}

std::vector<Tensor> atan2_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Tensor a = context.input(0), b = context.input(1);
  const Tensor inverse = reciprocal(add(mul(a, a), mul(b, b)));
  return gradients_of(
      context, [&] { return mul(mul(g, b), inverse); }, [&] { return mul(mul(g, neg(a)), inverse); });
}
std::vector<Tensor> hypot_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Tensor length = context.output(0);
  return gradients_of(
      context, [&] { return div(mul(g, context.input(0)), length); },
      [&] { return div(mul(g, context.input(1)), length); });
}
// Where a is 0 the sign of a jumps; 0 there, as LibTorch. The second operand, if it isn't a number, has none.
std::vector<Tensor> copysign_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  std::vector<Tensor> gradients(context.num_inputs());
  if (context.needs_grad(0)) {
    const Tensor a = context.input(0);
    gradients[0] = fit_gradient(mul(g, where(eq(a, 0), 0, div(context.output(0), a))), context.input_meta(0));
  }
  if (gradients.size() == 2 && context.needs_grad(1)) {
    gradients[1] = fit_gradient(zeros_like(g), context.input_meta(1));
  }
  return gradients;
}
std::vector<Tensor> logaddexp_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Tensor a = context.input(0), b = context.input(1);
  return gradients_of(
      context, [&] { return div(g, add(exp(sub(b, a)), 1)); }, [&] { return div(g, add(exp(sub(a, b)), 1)); });
}
std::vector<Tensor> xlogy_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<BinaryAttrs>();
  const Tensor& g = context.grad_output(0);
  if (attributes.number == kNoNumber) {
    const Tensor a = context.input(0), b = context.input(1);
    return gradients_of(
        context, [&] { return where(logical_and(eq(a, 0), le(b, 0)), 0, xlogy(g, b)); },
        [&] { return div(mul(g, a), b); });
  }
  const double number =
      attributes.number == kFloating ? context.scalar(0).as_double() : static_cast<double>(context.scalar(0).as_int());
  const Tensor x = context.input(0);
  if (attributes.reversed) return {div(mul(g, number), x)};
  const Tensor gradient = xlogy(g, number);
  return {number > 0 ? gradient : where(eq(x, 0), 0, gradient)};
}
// a is taken where it isn't beyond b, and where b is NaN.
template <bool kMaximum>
std::vector<Tensor> bound_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Tensor a = context.input(0), b = context.input(1);
  const Tensor takes_a = logical_or(kMaximum ? ge(a, b) : le(a, b), isnan(b));
  return gradients_of(
      context, [&] { return where(takes_a, g, 0); }, [&] { return where(takes_a, 0, g); });
}

#if DTORCH_WITH_KERNELS
struct Atan2Op {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(atan2)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(atan2_outf)(a, b, out); }
};
struct HypotOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(hypot)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(hypot_outf)(a, b, out); }
};
struct CopysignOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(copysign)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(copysign_outf)(a, b, out);
  }
};
struct LogaddexpOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(logaddexp)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(logaddexp_outf)(a, b, out);
  }
};
struct XlogyOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(xlogy)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(xlogy_outf)(a, b, out); }
};
struct FmaxOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(fmax)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(fmax_outf)(a, b, out); }
};
struct FminOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(fmin)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(fmin_outf)(a, b, out); }
};
struct HeavisideOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(heaviside)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(heaviside_outf)(a, b, out);
  }
};
#endif

std::vector<Sample> atan2_samples() { return binary_samples(atan2); }
std::vector<Sample> hypot_samples() { return binary_samples(hypot); }
std::vector<Sample> logaddexp_samples() { return binary_samples(logaddexp); }
std::vector<Sample> fmax_samples() { return binary_samples(fmax); }
std::vector<Sample> fmin_samples() { return binary_samples(fmin); }
std::vector<Sample> copysign_samples() {
  std::vector<Sample> samples = binary_samples(copysign);
  samples.push_back({.name = "number", .inputs = {integers({5, 1})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{copysign(in[0], -1)};
                     }});
  return samples;
}
std::vector<Sample> xlogy_samples() {
  std::vector<Sample> samples = binary_samples(xlogy, SampleFill::kPositive);
  samples.push_back({.name = "numbers", .inputs = {positive({5, 1})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{xlogy(in[0], 0.3), xlogy(2, in[0])};
                     }});
  return samples;
}
std::vector<Sample> heaviside_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{heaviside(in[0], in[1])}; };
  // -1, 0 and 1.
  const auto steps = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{heaviside(sub(to(in[0], in[1].dtype()), 1), in[1])};
  };
  return {{.name = "uneven",
           .inputs = {{{5, 3}, kInt64, SampleFill::kIndices, 3, false}, normal({5, 3}, kFloat64)},
           .call = steps},
          {.name = "integers, broadcast", .inputs = {integers({7, 1}), integers({3})}, .call = call},
          {.name = "empty", .inputs = {normal({0, 3}), normal({3})}, .call = call}};
}

}  // namespace

constinit OperatorDef atan2_op = {
    .name = "atan2",
    .signature = "atan2(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<Atan2Op>),
    .gradient = atan2_gradient,
    .samples = atan2_samples,
};
constinit OperatorDef hypot_op = {
    .name = "hypot",
    .signature = "hypot(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_needs_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<HypotOp>),
    .gradient = hypot_gradient,
    .samples = hypot_samples,
    .saved_outputs = 1,
};
constinit OperatorDef copysign_op = {
    .name = "copysign",
    .signature = "copysign(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<CopysignOp>),
    .gradient = copysign_gradient,
    .samples = copysign_samples,
    .saved_inputs = 1,
    .saved_outputs = 1,
};
constinit OperatorDef logaddexp_op = {
    .name = "logaddexp",
    .signature = "logaddexp(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_needs_floating,
    .rule = logaddexp_rule,
    .kernel = DTORCH_KERNEL(binary_kernel<LogaddexpOp>),
    .gradient = logaddexp_gradient,
    .samples = logaddexp_samples,
};
constinit OperatorDef xlogy_op = {
    .name = "xlogy",
    .signature = "xlogy(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary_floating,
    .rule = xlogy_rule,
    .kernel = DTORCH_KERNEL(binary_kernel<XlogyOp>),
    .gradient = xlogy_gradient,
    .samples = xlogy_samples,
    .linear_in = "a",
};
constinit OperatorDef fmax_op = {
    .name = "fmax",
    .signature = "fmax(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<FmaxOp>),
    .gradient = bound_gradient<true>,
    .samples = fmax_samples,
};
constinit OperatorDef fmin_op = {
    .name = "fmin",
    .signature = "fmin(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<FminOp>),
    .gradient = bound_gradient<false>,
    .samples = fmin_samples,
};
constinit OperatorDef heaviside_op = {
    .name = "heaviside",
    .signature = "heaviside(x, values) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = heaviside_infer,
    .rule = heaviside_rule,
    .kernel = DTORCH_KERNEL(binary_kernel<HeavisideOp>),
    .samples = heaviside_samples,
    .saved_inputs = 0,
};

Tensor atan2(const Tensor& a, const Tensor& b, Where where) { return record_binary(atan2_op, a, b, where); }
Tensor hypot(const Tensor& a, const Tensor& b, Where where) { return record_binary(hypot_op, a, b, where); }
Tensor copysign(const Tensor& a, const Tensor& b, Where where) { return record_binary(copysign_op, a, b, where); }
Tensor logaddexp(const Tensor& a, const Tensor& b, Where where) { return record_binary(logaddexp_op, a, b, where); }
Tensor xlogy(const Tensor& a, const Tensor& b, Where where) { return record_binary(xlogy_op, a, b, where); }
Tensor fmax(const Tensor& a, const Tensor& b, Where where) { return record_binary(fmax_op, a, b, where); }
Tensor fmin(const Tensor& a, const Tensor& b, Where where) { return record_binary(fmin_op, a, b, where); }
Tensor heaviside(const Tensor& x, const Tensor& values, Where where) {
  return record_binary(heaviside_op, x, values, where);
}
Tensor copysign(const Tensor& a, Number b, Where where) { return record_with_number(copysign_op, a, b, false, where); }
Tensor xlogy(const Tensor& a, Number b, Where where) { return record_with_number(xlogy_op, a, b, false, where); }
Tensor xlogy(Number a, const Tensor& b, Where where) { return record_with_number(xlogy_op, b, a, true, where); }

}  // namespace dtorch
