// tan, asin, acos, atan and the hyperbolic sinh, cosh, asinh, acosh, atanh of every element; integers give float32.
// Layouts: same on every dim; atan, sinh and asinh are increasing on all numbers, so that Partial(max) and Partial(min)
// pass (not asin, acos, acosh, atanh: a part outside their domain would give NaN). Gradients: g times the derivative.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/acos.h>
#include <ATen/ops/acos_cpu_dispatch.h>
#include <ATen/ops/acosh.h>
#include <ATen/ops/acosh_cpu_dispatch.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/asin_cpu_dispatch.h>
#include <ATen/ops/asinh.h>
#include <ATen/ops/asinh_cpu_dispatch.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/atan_cpu_dispatch.h>
#include <ATen/ops/atanh.h>
#include <ATen/ops/atanh_cpu_dispatch.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/cosh_cpu_dispatch.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sinh_cpu_dispatch.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tan_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

std::vector<Tensor> tan_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), add(square(context.output(0)), 1))};
}
// 1 / sqrt(1 - x^2).
Tensor arc_slope(const Tensor& x) { return rsqrt(add(mul(neg(x), x), 1)); }
std::vector<Tensor> asin_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), arc_slope(context.input(0)))};
}
std::vector<Tensor> acos_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), neg(arc_slope(context.input(0))))};
}
std::vector<Tensor> atan_gradient(const GradientContext& context) {
  return {div(context.grad_output(0), add(square(context.input(0)), 1))};
}
std::vector<Tensor> sinh_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), cosh(context.input(0)))};
}
std::vector<Tensor> cosh_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), sinh(context.input(0)))};
}
std::vector<Tensor> asinh_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), rsqrt(add(square(context.input(0)), 1)))};
}
std::vector<Tensor> acosh_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), rsqrt(sub(square(context.input(0)), 1)))};
}
std::vector<Tensor> atanh_gradient(const GradientContext& context) {
  return {div(context.grad_output(0), sub(1, square(context.input(0))))};
}

std::vector<Sample> tan_samples() { return unary_samples(tan); }
std::vector<Sample> asin_samples() { return unary_samples(asin, SampleFill::kUnit); }
std::vector<Sample> acos_samples() { return unary_samples(acos, SampleFill::kUnit); }
std::vector<Sample> atan_samples() { return unary_samples(atan); }
std::vector<Sample> sinh_samples() { return unary_samples(sinh); }
std::vector<Sample> cosh_samples() { return unary_samples(cosh); }
std::vector<Sample> asinh_samples() { return unary_samples(asinh); }
std::vector<Sample> acosh_samples() {
  return unary_samples([](const Tensor& x, Where where) { return acosh(add(x, 1, where), where); },
                       SampleFill::kPositive);
}
std::vector<Sample> atanh_samples() { return unary_samples(atanh, SampleFill::kUnit); }

}  // namespace

constinit OperatorDef tan_op = {
    .name = "tan",
    .signature = "tan(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(tan), DTORCH_ATEN(tan_outf)>),
    .gradient = tan_gradient,
    .samples = tan_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
};
constinit OperatorDef asin_op = {
    .name = "asin",
    .signature = "asin(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(asin), DTORCH_ATEN(asin_outf)>),
    .gradient = asin_gradient,
    .samples = asin_samples,
};
constinit OperatorDef acos_op = {
    .name = "acos",
    .signature = "acos(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(acos), DTORCH_ATEN(acos_outf)>),
    .gradient = acos_gradient,
    .samples = acos_samples,
};
constinit OperatorDef atan_op = {
    .name = "atan",
    .signature = "atan(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(atan), DTORCH_ATEN(atan_outf)>),
    .gradient = atan_gradient,
    .samples = atan_samples,
};
constinit OperatorDef sinh_op = {
    .name = "sinh",
    .signature = "sinh(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(sinh), DTORCH_ATEN(sinh_outf)>),
    .gradient = sinh_gradient,
    .samples = sinh_samples,
};
constinit OperatorDef cosh_op = {
    .name = "cosh",
    .signature = "cosh(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(cosh), DTORCH_ATEN(cosh_outf)>),
    .gradient = cosh_gradient,
    .samples = cosh_samples,
};
constinit OperatorDef asinh_op = {
    .name = "asinh",
    .signature = "asinh(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(asinh), DTORCH_ATEN(asinh_outf)>),
    .gradient = asinh_gradient,
    .samples = asinh_samples,
};
constinit OperatorDef acosh_op = {
    .name = "acosh",
    .signature = "acosh(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(acosh), DTORCH_ATEN(acosh_outf)>),
    .gradient = acosh_gradient,
    .samples = acosh_samples,
};
constinit OperatorDef atanh_op = {
    .name = "atanh",
    .signature = "atanh(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(atanh), DTORCH_ATEN(atanh_outf)>),
    .gradient = atanh_gradient,
    .samples = atanh_samples,
};

Tensor tan(const Tensor& x, Where where) { return record(tan_op, NoAttrs{}, {&x}, where); }
Tensor asin(const Tensor& x, Where where) { return record(asin_op, NoAttrs{}, {&x}, where); }
Tensor acos(const Tensor& x, Where where) { return record(acos_op, NoAttrs{}, {&x}, where); }
Tensor atan(const Tensor& x, Where where) { return record(atan_op, NoAttrs{}, {&x}, where); }
Tensor sinh(const Tensor& x, Where where) { return record(sinh_op, NoAttrs{}, {&x}, where); }
Tensor cosh(const Tensor& x, Where where) { return record(cosh_op, NoAttrs{}, {&x}, where); }
Tensor asinh(const Tensor& x, Where where) { return record(asinh_op, NoAttrs{}, {&x}, where); }
Tensor acosh(const Tensor& x, Where where) { return record(acosh_op, NoAttrs{}, {&x}, where); }
Tensor atanh(const Tensor& x, Where where) { return record(atanh_op, NoAttrs{}, {&x}, where); }

}  // namespace dtorch
