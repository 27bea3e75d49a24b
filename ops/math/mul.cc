// a * b and a / b, elementwise with broadcasting; by a number: mul_number, div_number, which keep nothing for the
// gradient. Layouts: same on every dim; a product is linear in each factor, a quotient in the first operand, so that
// Partial (sum, avg) passes. Gradients: g b and g a; g / b and -g (a / b) / b.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/memory_loop.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/BinaryOps.h>
#include <ATen/ops/div.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef mul_number_op, div_number_op;

namespace {

using namespace math;

std::vector<OutputMeta> div_infer(const InferContext& context) {
  return {{broadcast_inputs(context), floating_result_dtype(context.inputs, context.attributes<BinaryAttrs>().number)}};
}

std::vector<Tensor> mul_gradient(const GradientContext& context) {
  std::vector<Tensor> gradients(2);
  for (size_t i = 0; i < 2; ++i) {
    if (!context.needs_grad(i)) continue;
    gradients[i] = fit_gradient(mul(context.grad_output(0), context.input(1 - i)), context.input_meta(i));
  }
  return gradients;
}

std::vector<Tensor> div_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) gradients[0] = fit_gradient(div(g, context.input(1)), context.input_meta(0));
  if (context.needs_grad(1)) {
    const Tensor quotient = div(div(context.input(0), context.input(1)), context.input(1));
    gradients[1] = fit_gradient(mul(neg(g), quotient), context.input_meta(1));
  }
  return gradients;
}

// Of mul_number and div_number: the same operator on the gradient.
template <OperatorDef& kOp>
std::vector<Tensor> number_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<BinaryAttrs>();
  const Scalar scalar = context.scalar(0);
  Tensor gradient = record(kOp, attributes, {&context.grad_output(0)}, Where::current(), {.scalars = {&scalar, 1}});
  return {fit_gradient(gradient, context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
struct MulOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(mul)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(mul_outf)(a, b, out); }
};
struct DivOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(div)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(div_outf)(a, b, out); }
};
#endif

std::vector<Sample> mul_samples() { return binary_samples(mul); }
std::vector<Sample> div_samples() { return binary_samples(div, SampleFill::kPositive); }
std::vector<Sample> mul_number_samples() {
  return {{.name = "uneven",
           .inputs = {normal({5, 3})},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{in[0] * 2.5, 3 * in[0]};
               }},
          {.name = "integer tensor, size 1", .inputs = {integers({1, 3})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{in[0] * 2, in[0] * 0.5};
           }}};
}
std::vector<Sample> div_number_samples() {
  return {{.name = "uneven",
           .inputs = {normal({5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] / 3.0}; }},
          {.name = "integer tensor, size 1", .inputs = {integers({1, 3})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{in[0] / 2};
           }}};
}

}  // namespace

constinit OperatorDef mul_op = {
    .name = "mul",
    .signature = "mul(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary,
    .rule = elementwise_rule_of<Linear::kInEach>,
    .kernel = DTORCH_KERNEL(binary_kernel<MulOp>),
    .prepare = DTORCH_KERNEL(prepare_small_binary<loop_of<at::native::mul_stub>, Product>),
    .gradient = mul_gradient,
    .samples = mul_samples,
    .linear_in = "each",
    .elementwise = true,
};

constinit OperatorDef mul_number_op = {
    .name = "mul_number",
    .signature = "mul(a, number) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(binary_kernel<MulOp>),
    .prepare = DTORCH_KERNEL(prepare_small_binary<loop_of<at::native::mul_stub>, Product>),
    .gradient = number_gradient<mul_number_op>,
    .samples = mul_number_samples,
    .linear_in = "a",
    .saved_inputs = 0,
    .elementwise = true,
};

constinit OperatorDef div_op = {
    .name = "div",
    .signature = "div(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = div_infer,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(binary_kernel<DivOp>),
    .prepare = DTORCH_KERNEL(prepare_small_floating_binary<loop_of<at::native::div_true_stub>, Quotient>),
    .gradient = div_gradient,
    .samples = div_samples,
    .linear_in = "a",
    .elementwise = true,
};

constinit OperatorDef div_number_op = {
    .name = "div_number",
    .signature = "div(a, number) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = div_infer,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(binary_kernel<DivOp>),
    .prepare = DTORCH_KERNEL(prepare_small_floating_binary<loop_of<at::native::div_true_stub>, Quotient>),
    .gradient = number_gradient<div_number_op>,
    .samples = div_number_samples,
    .linear_in = "a",
    .saved_inputs = 0,
    .elementwise = true,
};

Tensor mul(const Tensor& a, const Tensor& b, Where where) { return record_binary(mul_op, a, b, where); }
Tensor mul(const Tensor& a, Number b, Where where) { return record_with_number(mul_number_op, a, b, false, where); }
Tensor div(const Tensor& a, const Tensor& b, Where where) { return record_binary(div_op, a, b, where); }
Tensor div(const Tensor& a, Number b, Where where) { return record_with_number(div_number_op, a, b, false, where); }
// As LibTorch computes it.
Tensor div(Number a, const Tensor& b, Where where) { return mul(reciprocal(b, where), a, where); }

}  // namespace dtorch
