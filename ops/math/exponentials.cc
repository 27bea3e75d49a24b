// expm1, exp2, log1p, log2, log10, erfc, erfinv of every element; integers give float32. deg2rad and rad2deg are
// products with a number. Layouts: same on every dim; expm1 and exp2 are increasing and erfc is decreasing, so that
// Partial(max) and Partial(min) pass (not the logarithms and erfinv: a part outside their domain would give NaN).
// Gradients: g times the derivative.
#include <cmath>
#include <numbers>

#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfc_cpu_dispatch.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/erfinv_cpu_dispatch.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/exp2_cpu_dispatch.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/expm1_cpu_dispatch.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log10_cpu_dispatch.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log1p_cpu_dispatch.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/log2_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

std::vector<Tensor> expm1_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), add(context.output(0), 1))};
}
std::vector<Tensor> exp2_gradient(const GradientContext& context) {
  return {mul(mul(context.grad_output(0), context.output(0)), std::numbers::ln2)};
}
std::vector<Tensor> log1p_gradient(const GradientContext& context) {
  return {div(context.grad_output(0), add(context.input(0), 1))};
}
std::vector<Tensor> log2_gradient(const GradientContext& context) {
  return {div(context.grad_output(0), mul(context.input(0), std::numbers::ln2))};
}
std::vector<Tensor> log10_gradient(const GradientContext& context) {
  return {div(context.grad_output(0), mul(context.input(0), std::numbers::ln10))};
}
std::vector<Tensor> erfc_gradient(const GradientContext& context) {
  const Tensor slope = mul(exp(neg(square(context.input(0)))), -2 / std::sqrt(std::numbers::pi));
  return {mul(slope, context.grad_output(0))};
}
std::vector<Tensor> erfinv_gradient(const GradientContext& context) {
  const Tensor slope = mul(exp(square(context.output(0))), 0.5 * std::sqrt(std::numbers::pi));
  return {mul(slope, context.grad_output(0))};
}

std::vector<Sample> expm1_samples() { return unary_samples(expm1); }
std::vector<Sample> exp2_samples() { return unary_samples(exp2); }
std::vector<Sample> log1p_samples() { return unary_samples(log1p, SampleFill::kPositive); }
std::vector<Sample> log2_samples() { return unary_samples(log2, SampleFill::kPositive); }
std::vector<Sample> log10_samples() { return unary_samples(log10, SampleFill::kPositive); }
std::vector<Sample> erfc_samples() { return unary_samples(erfc); }
std::vector<Sample> erfinv_samples() { return unary_samples(erfinv, SampleFill::kUnit); }
template <Tensor (*kFunction)(const Tensor&, Where)>
std::vector<Sample> angle_samples() {
  std::vector<Sample> samples = unary_samples(kFunction);
  samples.push_back({.name = "integers", .inputs = {integers({5, 1})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{kFunction(in[0], Where::current())};
                     }});
  return samples;
}

}  // namespace

constinit OperatorDef expm1_op = {
    .name = "expm1",
    .signature = "expm1(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(expm1), DTORCH_ATEN(expm1_outf)>),
    .gradient = expm1_gradient,
    .samples = expm1_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
};
constinit OperatorDef exp2_op = {
    .name = "exp2",
    .signature = "exp2(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(exp2), DTORCH_ATEN(exp2_outf)>),
    .gradient = exp2_gradient,
    .samples = exp2_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
};
constinit OperatorDef log1p_op = {
    .name = "log1p",
    .signature = "log1p(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(log1p), DTORCH_ATEN(log1p_outf)>),
    .gradient = log1p_gradient,
    .samples = log1p_samples,
};
constinit OperatorDef log2_op = {
    .name = "log2",
    .signature = "log2(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(log2), DTORCH_ATEN(log2_outf)>),
    .gradient = log2_gradient,
    .samples = log2_samples,
};
constinit OperatorDef log10_op = {
    .name = "log10",
    .signature = "log10(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(log10), DTORCH_ATEN(log10_outf)>),
    .gradient = log10_gradient,
    .samples = log10_samples,
};
constinit OperatorDef erfc_op = {
    .name = "erfc",
    .signature = "erfc(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kDown>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(erfc), DTORCH_ATEN(erfc_outf)>),
    .gradient = erfc_gradient,
    .samples = erfc_samples,
};
constinit OperatorDef erfinv_op = {
    .name = "erfinv",
    .signature = "erfinv(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(erfinv), DTORCH_ATEN(erfinv_outf)>),
    .gradient = erfinv_gradient,
    .samples = erfinv_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
};

// Compositions.
constinit OperatorDef deg2rad_op = {
    .name = "deg2rad",
    .signature = "deg2rad(x) -> Tensor",
    .samples = angle_samples<deg2rad>,
    .linear_in = "x",
};
constinit OperatorDef rad2deg_op = {
    .name = "rad2deg",
    .signature = "rad2deg(x) -> Tensor",
    .samples = angle_samples<rad2deg>,
    .linear_in = "x",
};

Tensor expm1(const Tensor& x, Where where) { return record(expm1_op, NoAttrs{}, {&x}, where); }
Tensor exp2(const Tensor& x, Where where) { return record(exp2_op, NoAttrs{}, {&x}, where); }
Tensor log1p(const Tensor& x, Where where) { return record(log1p_op, NoAttrs{}, {&x}, where); }
Tensor log2(const Tensor& x, Where where) { return record(log2_op, NoAttrs{}, {&x}, where); }
Tensor log10(const Tensor& x, Where where) { return record(log10_op, NoAttrs{}, {&x}, where); }
Tensor erfc(const Tensor& x, Where where) { return record(erfc_op, NoAttrs{}, {&x}, where); }
Tensor erfinv(const Tensor& x, Where where) { return record(erfinv_op, NoAttrs{}, {&x}, where); }
Tensor deg2rad(const Tensor& x, Where where) { return mul(x, std::numbers::pi / 180, where); }
Tensor rad2deg(const Tensor& x, Where where) { return mul(x, 180 / std::numbers::pi, where); }

}  // namespace dtorch
