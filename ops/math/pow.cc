// pow(a, exponent), elementwise with broadcasting; pow_number: the exponent is a number. Layouts: same on every dim.
// Gradients: g exponent a^(exponent - 1), and g a^exponent log(a), each 0 where the formula's limit is.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/Pow.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/pow_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

std::vector<OutputMeta> pow_infer(const InferContext& context) {
  refuse_bool(context);
  return infer_binary(context);
}

std::vector<Tensor> pow_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Tensor a = context.input(0), exponent = context.input(1);
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) {
    const Tensor slope = mul(exponent, pow(a, sub(exponent, 1)));
    gradients[0] = fit_gradient(where(eq(exponent, 0), 0, mul(g, slope)), context.input_meta(0));
  }
  if (context.needs_grad(1)) {
    const Tensor slope = mul(context.output(0), log(a));
    gradients[1] = fit_gradient(where(logical_and(eq(a, 0), ge(exponent, 0)), 0, mul(g, slope)), context.input_meta(1));
  }
  return gradients;
}

Number exponent_of(int64_t kind, const Scalar& scalar) {
  return kind == kFloating ? Number(scalar.as_double()) : Number(scalar.as_int());
}

std::vector<Tensor> pow_number_gradient(const GradientContext& context) {
  const Number exponent = exponent_of(context.attributes<BinaryAttrs>().number, context.scalar(0));
  const Tensor x = context.input(0);
  if (exponent.floating == 0) return {zeros_like(x)};
  const Number less = exponent.is_floating ? Number(exponent.floating - 1) : Number(exponent.integer - 1);
  return {mul(context.grad_output(0), mul(pow(x, less), exponent))};
}

#if DTORCH_WITH_KERNELS
struct PowOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(pow)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) { DTORCH_ATEN(pow_outf)(a, b, out); }
};
void pow_number_kernel(KernelContext& context) {
  set_output(context, 0,
             DTORCH_ATEN(pow)(input(context, 0), number_of(context, 0, context.attributes<BinaryAttrs>().number)));
}
#endif

std::vector<Sample> pow_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{pow(in[0], in[1])}; };
  return {
      {.name = "uneven", .inputs = {positive({5, 3}), normal({5, 3})}, .call = call},
      {.name = "broadcast, size 1", .inputs = {positive({1, 3}, kFloat64), normal({4, 1}, kFloat64)}, .call = call}};
}
std::vector<Sample> pow_number_samples() {
  return {{.name = "uneven",
           .inputs = {positive({5, 3})},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{pow(in[0], 2), pow(in[0], -1.5), pow(in[0], 0)};
               }},
          {.name = "integers, size 1", .inputs = {integers({1, 3})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{pow(in[0], 3)};
           }}};
}

}  // namespace

constinit OperatorDef pow_op = {
    .name = "pow",
    .signature = "pow(a, exponent) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = pow_infer,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<PowOp>),
    .prepare = DTORCH_KERNEL(prepare_floating_binary<loop_of<at::native::pow_tensor_tensor_stub>>),
    .gradient = pow_gradient,
    .samples = pow_samples,
    .saved_outputs = 1,
    .elementwise = true,
};
constinit OperatorDef pow_number_op = {
    .name = "pow_number",
    .signature = "pow(a, number) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = pow_infer,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(pow_number_kernel),
    .gradient = pow_number_gradient,
    .samples = pow_number_samples,
};

Tensor pow(const Tensor& a, const Tensor& exponent, Where where) { return record_binary(pow_op, a, exponent, where); }
Tensor pow(const Tensor& a, Number exponent, Where where) {
  if (is_integral(a.dtype()) && !exponent.is_floating && exponent.integer < 0) {
    throw at_line(UserError("[pow] integers to the negative power " + std::to_string(exponent.integer) +
                            "; convert with to(kFloat32)"),
                  where);
  }
  return record_with_number(pow_number_op, a, exponent, false, where);
}
Tensor Tensor::pow(double exponent, Where where) const {
  // An integer exponent leaves integers integers, as in PyTorch.
  const bool whole = !is_floating(dtype()) && is_whole(exponent);
  return dtorch::pow(*this, whole ? Number(static_cast<int64_t>(exponent)) : Number(exponent), where);
}

}  // namespace dtorch
