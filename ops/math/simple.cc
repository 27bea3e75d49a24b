// neg, abs, sign, floor, ceil, round (half to even), square, reciprocal of every element. Layouts: same on every dim;
// neg is linear; sign, floor, ceil and round are non-decreasing, so that Partial(max) and Partial(min) pass. floor,
// ceil, round and sign have zero gradients.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/Pow.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/abs_cpu_dispatch.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/ceil_cpu_dispatch.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/floor_cpu_dispatch.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/neg_cpu_dispatch.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/pow_cpu_dispatch.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/reciprocal_cpu_dispatch.h>
#include <ATen/ops/round.h>
#include <ATen/ops/round_cpu_dispatch.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sign_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

std::vector<OutputMeta> infer_no_bool(const InferContext& context) {
  refuse_bool(context);
  return infer_same(context);
}
std::vector<OutputMeta> infer_square(const InferContext& context) {
  return {{context.shape(0), context.dtype(0) == kBool ? kInt64 : context.dtype(0)}};
}

std::vector<Tensor> neg_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {neg(g)};
}
std::vector<Tensor> abs_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {mul(g, sign(context.input(0)))};
}
std::vector<Tensor> sign_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {zeros_like(g)};
}
std::vector<Tensor> floor_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {zeros_like(g)};
}
std::vector<Tensor> ceil_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {zeros_like(g)};
}
std::vector<Tensor> round_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {zeros_like(g)};
}
std::vector<Tensor> square_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {mul(g, mul(context.input(0), 2))};
}
std::vector<Tensor> reciprocal_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {mul(g, neg(square(context.output(0))))};
}

#if DTORCH_WITH_KERNELS
void abs_kernel(KernelContext& context) {
  unary_kernel<DTORCH_BY_DEVICE(at::native::abs, at::abs), DTORCH_ATEN(abs_outf)>(context);
}
at::Tensor run_round(const at::Tensor& x) { return DTORCH_ATEN(round)(x); }
at::Tensor& run_round_out(const at::Tensor& x, at::Tensor& out) { return DTORCH_ATEN(round_outf)(x, out); }
void round_kernel(KernelContext& context) { unary_kernel<run_round, run_round_out>(context); }
// As LibTorch's square does.
at::Tensor run_square(const at::Tensor& x) { return DTORCH_ATEN(pow)(x, 2); }
at::Tensor& run_square_out(const at::Tensor& x, at::Tensor& out) { return DTORCH_ATEN(pow_outf)(x, 2, out); }
void square_loop(at::TensorIterator& iterator) { at::native::pow_tensor_scalar_stub(at::kCPU, iterator, 2); }
void square_kernel(KernelContext& context) { unary_kernel<run_square, run_square_out>(context); }
#endif

std::vector<Sample> neg_samples() { return unary_samples(neg); }
std::vector<Sample> abs_samples() { return unary_samples(abs); }
std::vector<Sample> sign_samples() { return unary_samples(sign); }
std::vector<Sample> floor_samples() { return unary_samples(floor); }
std::vector<Sample> ceil_samples() { return unary_samples(ceil); }
std::vector<Sample> round_samples() { return unary_samples(round); }
std::vector<Sample> square_samples() { return unary_samples(square); }
std::vector<Sample> reciprocal_samples() { return unary_samples(reciprocal, SampleFill::kPositive); }

}  // namespace

constinit OperatorDef neg_op = {
    .name = "neg",
    .signature = "neg(x) -> Tensor",
    .infer = infer_no_bool,
    .rule = monotone_rule<Monotone::kDown, Linear::kInAll>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(neg), DTORCH_ATEN(neg_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::neg_stub>>),
    .gradient = neg_gradient,
    .samples = neg_samples,
    .linear_in = "x",
    .saved_inputs = 0,
    .elementwise = true,
};

constinit OperatorDef abs_op = {
    .name = "abs",
    .signature = "abs(x) -> Tensor",
    .infer = infer_no_bool,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(abs_kernel),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::abs_stub>>),
    .gradient = abs_gradient,
    .samples = abs_samples,
    .saved_inputs = 1,
    .elementwise = true,
};

constinit OperatorDef sign_op = {
    .name = "sign",
    .signature = "sign(x) -> Tensor",
    .infer = infer_same,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(sign), DTORCH_ATEN(sign_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::sign_stub>>),
    .gradient = sign_gradient,
    .samples = sign_samples,
    .saved_inputs = 0,
    .elementwise = true,
};

constinit OperatorDef floor_op = {
    .name = "floor",
    .signature = "floor(x) -> Tensor",
    .infer = infer_same,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(floor), DTORCH_ATEN(floor_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::floor_stub>>),
    .gradient = floor_gradient,
    .samples = floor_samples,
    .saved_inputs = 0,
    .elementwise = true,
};

constinit OperatorDef ceil_op = {
    .name = "ceil",
    .signature = "ceil(x) -> Tensor",
    .infer = infer_same,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(ceil), DTORCH_ATEN(ceil_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::ceil_stub>>),
    .gradient = ceil_gradient,
    .samples = ceil_samples,
    .saved_inputs = 0,
    .elementwise = true,
};

constinit OperatorDef round_op = {
    .name = "round",
    .signature = "round(x) -> Tensor",
    .infer = infer_same,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(round_kernel),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::round_stub>>),
    .gradient = round_gradient,
    .samples = round_samples,
    .saved_inputs = 0,
    .elementwise = true,
};

constinit OperatorDef square_op = {
    .name = "square",
    .signature = "square(x) -> Tensor",
    .infer = infer_square,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(square_kernel),
    .prepare = DTORCH_KERNEL(prepare_floating<square_loop>),
    .gradient = square_gradient,
    .samples = square_samples,
    .saved_inputs = 1,
    .elementwise = true,
};

constinit OperatorDef reciprocal_op = {
    .name = "reciprocal",
    .signature = "reciprocal(x) -> Tensor",
    .infer = infer_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(reciprocal), DTORCH_ATEN(reciprocal_outf)>),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::reciprocal_stub>>),
    .gradient = reciprocal_gradient,
    .samples = reciprocal_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
    .elementwise = true,
};

Tensor neg(const Tensor& x, Where where) { return record(neg_op, NoAttrs{}, {&x}, where); }
Tensor Tensor::neg(Where where) const { return dtorch::neg(*this, where); }
Tensor abs(const Tensor& x, Where where) { return record(abs_op, NoAttrs{}, {&x}, where); }
Tensor Tensor::abs(Where where) const { return dtorch::abs(*this, where); }
Tensor sign(const Tensor& x, Where where) { return record(sign_op, NoAttrs{}, {&x}, where); }
Tensor floor(const Tensor& x, Where where) { return record(floor_op, NoAttrs{}, {&x}, where); }
Tensor ceil(const Tensor& x, Where where) { return record(ceil_op, NoAttrs{}, {&x}, where); }
Tensor round(const Tensor& x, Where where) { return record(round_op, NoAttrs{}, {&x}, where); }
Tensor square(const Tensor& x, Where where) { return record(square_op, NoAttrs{}, {&x}, where); }
Tensor reciprocal(const Tensor& x, Where where) { return record(reciprocal_op, NoAttrs{}, {&x}, where); }

}  // namespace dtorch
