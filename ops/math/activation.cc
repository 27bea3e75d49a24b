// relu, sigmoid, tanh, silu (x sigmoid(x)), gelu (approximate none: x (1 + erf(x / sqrt 2)) / 2, or tanh). Layouts:
// same on every dim; relu, sigmoid and tanh are increasing, so that Partial(max) and Partial(min) pass. Their gradients
// are operators of their own (relu_gradient, ...), linear in the first input, g, so that a pending gradient stays
// pending.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/gelu_backward_cpu_dispatch.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/sigmoid_backward_cpu_dispatch.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/silu_backward_cpu_dispatch.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/tanh_backward_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef relu_gradient_op, sigmoid_gradient_op, tanh_gradient_op, silu_gradient_op, gelu_gradient_op;

namespace {

using namespace math;

struct GeluAttrs {
  std::string approximate = "none";
  template <class V>
  void fields(V& v) {
    v("approximate", approximate);
  }
};

std::vector<OutputMeta> infer_needs_floating(const InferContext& context) {
  if (!is_floating(context.dtype(0))) {
    throw DTypeError("[" + std::string(context.op) + "] got " + name_of(context.dtype(0)) +
                     ", needs a floating dtype; convert with to(kFloat32)");
  }
  return infer_same(context);
}
std::vector<OutputMeta> relu_infer(const InferContext& context) {
  refuse_bool(context);
  return infer_same(context);
}

// With the saved output (relu, sigmoid, tanh) or input (silu).
template <OperatorDef& kOp>
std::vector<Tensor> gradient_by_output(const GradientContext& context) {
  const Tensor saved = context.output(0);
  return {record(kOp, NoAttrs{}, {&context.grad_output(0), &saved}, Where::current())};
}
std::vector<Tensor> silu_gradient(const GradientContext& context) {
  const Tensor x = context.input(0);
  return {record(silu_gradient_op, NoAttrs{}, {&context.grad_output(0), &x}, Where::current())};
}
std::vector<Tensor> gelu_gradient(const GradientContext& context) {
  const Tensor x = context.input(0);
  return {record(gelu_gradient_op, context.attributes<GeluAttrs>(), {&context.grad_output(0), &x}, Where::current())};
}

#if DTORCH_WITH_KERNELS
// As LibTorch's relu does.
at::Tensor run_relu(const at::Tensor& x) { return DTORCH_ATEN(clamp_min)(x, 0); }
at::Tensor& run_relu_out(const at::Tensor& x, at::Tensor& out) { return DTORCH_ATEN(clamp_min_outf)(x, 0, out); }
void relu_loop(at::TensorIterator& iterator) { at::native::clamp_min_scalar_stub(at::kCPU, iterator, 0); }
void relu_kernel(KernelContext& context) { unary_kernel<run_relu, run_relu_out>(context); }
void gelu_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(gelu)(input(context, 0), context.attributes<GeluAttrs>().approximate));
}

void relu_gradient_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(threshold_backward)(input(context, 0), input(context, 1), 0));
}
template <auto kRun, auto kRunOut>
void gradient_kernel(KernelContext& context) {
  if (!can_overwrite(context, 0)) return set_output(context, 0, kRun(input(context, 0), input(context, 1)));
  at::Tensor out = input(context, 0);
  kRunOut(input(context, 0), input(context, 1), out);
  context.output(0) = context.input(0);
}
void gelu_gradient_kernel(KernelContext& context) {
  const auto& approximate = context.attributes<GeluAttrs>().approximate;
  set_output(context, 0, DTORCH_ATEN(gelu_backward)(input(context, 0), input(context, 1), approximate));
}
#endif

std::vector<Sample> relu_samples() { return unary_samples(relu); }
std::vector<Sample> sigmoid_samples() { return unary_samples(sigmoid); }
std::vector<Sample> tanh_samples() { return unary_samples(tanh); }
std::vector<Sample> silu_samples() { return unary_samples(silu); }
std::vector<Sample> gelu_samples() {
  std::vector<Sample> samples = unary_samples([](const Tensor& x, Where where) { return gelu(x, "none", where); });
  samples.push_back({.name = "tanh", .inputs = {normal({5, 1})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{gelu(in[0], "tanh")};
                     }});
  return samples;
}

}  // namespace

constinit OperatorDef relu_op = {
    .name = "relu",
    .signature = "relu(x) -> Tensor",
    .infer = relu_infer,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(relu_kernel),
    .prepare = DTORCH_KERNEL(prepare_floating<relu_loop>),
    .gradient = gradient_by_output<relu_gradient_op>,
    .samples = relu_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
    .elementwise = true,
};
constinit OperatorDef sigmoid_op = {
    .name = "sigmoid",
    .signature = "sigmoid(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL((unary_kernel<DTORCH_ATEN(sigmoid), DTORCH_ATEN(sigmoid_outf)>)),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::sigmoid_stub>>),
    .gradient = gradient_by_output<sigmoid_gradient_op>,
    .samples = sigmoid_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
    .elementwise = true,
};
constinit OperatorDef tanh_op = {
    .name = "tanh",
    .signature = "tanh(x) -> Tensor",
    .infer = infer_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL((unary_kernel<DTORCH_ATEN(tanh), DTORCH_ATEN(tanh_outf)>)),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::tanh_stub>>),
    .gradient = gradient_by_output<tanh_gradient_op>,
    .samples = tanh_samples,
    .saved_inputs = 0,
    .saved_outputs = 1,
    .elementwise = true,
};
constinit OperatorDef silu_op = {
    .name = "silu",
    .signature = "silu(x) -> Tensor",
    .infer = infer_needs_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL((unary_kernel<DTORCH_ATEN(silu), DTORCH_ATEN(silu_outf)>)),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::silu_stub>>),
    .gradient = silu_gradient,
    .samples = silu_samples,
    .saved_inputs = 1,
    .elementwise = true,
};
constinit OperatorDef gelu_op = {
    .name = "gelu",
    .signature = "gelu(x, approximate) -> Tensor",
    .attributes = attribute_codec<GeluAttrs>(),
    .infer = infer_needs_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(gelu_kernel),
    .gradient = gelu_gradient,
    .samples = gelu_samples,
    .saved_inputs = 1,
};

constinit OperatorDef relu_gradient_op = {
    .name = "relu_gradient",
    .signature = "relu_gradient(g, y) -> Tensor",
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(relu_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef sigmoid_gradient_op = {
    .name = "sigmoid_gradient",
    .signature = "sigmoid_gradient(g, y) -> Tensor",
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL((gradient_kernel<DTORCH_ATEN(sigmoid_backward), DTORCH_ATEN(sigmoid_backward_outf)>)),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::sigmoid_backward_stub>>),
    .linear_in = "g",
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef tanh_gradient_op = {
    .name = "tanh_gradient",
    .signature = "tanh_gradient(g, y) -> Tensor",
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL((gradient_kernel<DTORCH_ATEN(tanh_backward), DTORCH_ATEN(tanh_backward_outf)>)),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::tanh_backward_stub>>),
    .linear_in = "g",
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef silu_gradient_op = {
    .name = "silu_gradient",
    .signature = "silu_gradient(g, x) -> Tensor",
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL((gradient_kernel<DTORCH_ATEN(silu_backward), DTORCH_ATEN(silu_backward_outf)>)),
    .prepare = DTORCH_KERNEL(prepare_floating<loop_of<at::native::silu_backward_stub>>),
    .linear_in = "g",
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef gelu_gradient_op = {
    .name = "gelu_gradient",
    .signature = "gelu_gradient(g, x, approximate) -> Tensor",
    .attributes = attribute_codec<GeluAttrs>(),
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(gelu_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

Tensor relu(const Tensor& x, Where where) { return record(relu_op, NoAttrs{}, {&x}, where); }
Tensor sigmoid(const Tensor& x, Where where) { return record(sigmoid_op, NoAttrs{}, {&x}, where); }
Tensor tanh(const Tensor& x, Where where) { return record(tanh_op, NoAttrs{}, {&x}, where); }
Tensor silu(const Tensor& x, Where where) { return record(silu_op, NoAttrs{}, {&x}, where); }
Tensor gelu(const Tensor& x, const std::string& approximate, Where where) {
  if (approximate != "none" && approximate != "tanh") {
    throw at_line(UserError("[gelu] approximate is \"" + approximate + "\", allowed are \"none\" and \"tanh\""), where);
  }
  return record(gelu_op, GeluAttrs{approximate}, {&x}, where);
}
Tensor Tensor::relu(Where where) const { return dtorch::relu(*this, where); }
Tensor Tensor::sigmoid(Where where) const { return dtorch::sigmoid(*this, where); }
Tensor Tensor::tanh(Where where) const { return dtorch::tanh(*this, where); }

}  // namespace dtorch
