// exp, log, sqrt, rsqrt, sin, cos, erf of every element; integers give float32. Layouts: same on every dim; exp and erf
// are increasing, so that Partial(max) and Partial(min) pass (not sqrt and log: a part outside their domain would give
// NaN).
#include <cmath>
#include <numbers>

#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cos_cpu_dispatch.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erf_cpu_dispatch.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/exp_cpu_dispatch.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log_cpu_dispatch.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/rsqrt_cpu_dispatch.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sin_cpu_dispatch.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

std::vector<Tensor> exp_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {mul(g, context.output(0))};
}
std::vector<Tensor> log_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {div(g, context.input(0))};
}
std::vector<Tensor> sqrt_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {div(g, mul(context.output(0), 2))};
}
std::vector<Tensor> rsqrt_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {mul(mul(g, -0.5), pow(context.output(0), 3))};
}
std::vector<Tensor> sin_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {mul(g, cos(context.input(0)))};
}
std::vector<Tensor> cos_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {mul(g, neg(sin(context.input(0))))};
}
std::vector<Tensor> erf_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {mul(mul(exp(neg(square(context.input(0)))), 2 / std::sqrt(std::numbers::pi)), g)};
}

std::vector<Sample> exp_samples() { return unary_samples(exp); }
std::vector<Sample> log_samples() { return unary_samples(log, SampleFill::kPositive); }
std::vector<Sample> sqrt_samples() { return unary_samples(sqrt, SampleFill::kPositive); }
std::vector<Sample> rsqrt_samples() { return unary_samples(rsqrt, SampleFill::kPositive); }
std::vector<Sample> sin_samples() { return unary_samples(sin); }
std::vector<Sample> cos_samples() { return unary_samples(cos); }
std::vector<Sample> erf_samples() { return unary_samples(erf); }

}  // namespace

constinit OperatorDef exp_op = {
    .name = "exp",
    .signature = "exp(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(exp), DTORCH_ATEN(exp_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::exp_stub>>),
    .gradient = exp_gradient,
    .samples = exp_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
    .elementwise = true,
};

constinit OperatorDef log_op = {
    .name = "log",
    .signature = "log(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(log), DTORCH_ATEN(log_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::log_stub>>),
    .gradient = log_gradient,
    .samples = log_samples,
    .saved_inputs = 1,
    .elementwise = true,
};

constinit OperatorDef sqrt_op = {
    .name = "sqrt",
    .signature = "sqrt(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(sqrt), DTORCH_ATEN(sqrt_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::sqrt_stub>>),
    .gradient = sqrt_gradient,
    .samples = sqrt_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
    .elementwise = true,
};

constinit OperatorDef rsqrt_op = {
    .name = "rsqrt",
    .signature = "rsqrt(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(rsqrt), DTORCH_ATEN(rsqrt_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::rsqrt_stub>>),
    .gradient = rsqrt_gradient,
    .samples = rsqrt_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
    .elementwise = true,
};

constinit OperatorDef sin_op = {
    .name = "sin",
    .signature = "sin(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(sin), DTORCH_ATEN(sin_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::sin_stub>>),
    .gradient = sin_gradient,
    .samples = sin_samples,
    .saved_inputs = 1,
    .elementwise = true,
};

constinit OperatorDef cos_op = {
    .name = "cos",
    .signature = "cos(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(cos), DTORCH_ATEN(cos_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::cos_stub>>),
    .gradient = cos_gradient,
    .samples = cos_samples,
    .saved_inputs = 1,
    .elementwise = true,
};

constinit OperatorDef erf_op = {
    .name = "erf",
    .signature = "erf(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(erf), DTORCH_ATEN(erf_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::erf_stub>>),
    .gradient = erf_gradient,
    .samples = erf_samples,
    .saved_inputs = 1,
    .elementwise = true,
};

Tensor exp(const Tensor& x, Where where) { return record(exp_op, NoAttrs{}, {&x}, where); }
Tensor Tensor::exp(Where where) const { return dtorch::exp(*this, where); }
Tensor log(const Tensor& x, Where where) { return record(log_op, NoAttrs{}, {&x}, where); }
Tensor Tensor::log(Where where) const { return dtorch::log(*this, where); }
Tensor sqrt(const Tensor& x, Where where) { return record(sqrt_op, NoAttrs{}, {&x}, where); }
Tensor Tensor::sqrt(Where where) const { return dtorch::sqrt(*this, where); }
Tensor rsqrt(const Tensor& x, Where where) { return record(rsqrt_op, NoAttrs{}, {&x}, where); }
Tensor Tensor::rsqrt(Where where) const { return dtorch::rsqrt(*this, where); }
Tensor sin(const Tensor& x, Where where) { return record(sin_op, NoAttrs{}, {&x}, where); }
Tensor cos(const Tensor& x, Where where) { return record(cos_op, NoAttrs{}, {&x}, where); }
Tensor erf(const Tensor& x, Where where) { return record(erf_op, NoAttrs{}, {&x}, where); }

}  // namespace dtorch
