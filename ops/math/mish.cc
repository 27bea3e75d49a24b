// mish(x) = x tanh(softplus(x)), logsigmoid(x) = log(1 / (1 + exp(-x))), softsign(x) = x / (1 + |x|), tanhshrink(x) = x
// - tanh(x). Layouts: same on every dim; logsigmoid is increasing, so that Partial(max) and Partial(min) pass. mish and
// logsigmoid have gradient operators, linear in g, so that a pending gradient stays pending; the other two are
// compositions.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/log_sigmoid_backward.h>
#include <ATen/ops/log_sigmoid_backward_native.h>
#include <ATen/ops/log_sigmoid_forward.h>
#include <ATen/ops/log_sigmoid_forward_native.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/mish_backward.h>
#include <ATen/ops/mish_backward_native.h>
#include <ATen/ops/mish_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef mish_gradient_op, logsigmoid_gradient_op;

namespace {

using namespace math;

#if DTORCH_WITH_KERNELS
void mish_gradient_kernel(KernelContext& context) {
  set_output(context, 0,
             DTORCH_BY_DEVICE(at::native::mish_backward, at::mish_backward)(input(context, 0), input(context, 1)));
}
constexpr auto forward = DTORCH_BY_DEVICE(at::native::log_sigmoid_forward_cpu, at::log_sigmoid_forward);
void logsigmoid_kernel(KernelContext& context) { set_output(context, 0, std::get<0>(forward(input(context, 0)))); }
// The forward's buffer is made anew rather than kept.
void logsigmoid_gradient_kernel(KernelContext& context) {
  const at::Tensor& x = input(context, 1);
  const at::Tensor buffer = std::get<1>(forward(x));
  set_output(
      context, 0,
      DTORCH_BY_DEVICE(at::native::log_sigmoid_backward_cpu, at::log_sigmoid_backward)(input(context, 0), x, buffer));
}
#endif

std::vector<Sample> mish_samples() { return activation_samples(mish); }
std::vector<Sample> logsigmoid_samples() { return activation_samples(logsigmoid); }
std::vector<Sample> softsign_samples() { return activation_samples(softsign); }
std::vector<Sample> tanhshrink_samples() { return activation_samples(tanhshrink); }

}  // namespace

constinit OperatorDef mish_op = {
    .name = "mish",
    .signature = "mish(x) -> Tensor",
    .infer = infer_needs_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(mish), DTORCH_ATEN(mish_outf)>),
    .gradient = gradient_from_input<mish_gradient_op>,
    .samples = mish_samples,
};
constinit OperatorDef logsigmoid_op = {
    .name = "logsigmoid",
    .signature = "logsigmoid(x) -> Tensor",
    .infer = infer_needs_floating,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(logsigmoid_kernel),
    .gradient = gradient_from_input<logsigmoid_gradient_op>,
    .samples = logsigmoid_samples,
};
// Compositions.
constinit OperatorDef softsign_op = {
    .name = "softsign",
    .signature = "softsign(x) -> Tensor",
    .samples = softsign_samples,
};
constinit OperatorDef tanhshrink_op = {
    .name = "tanhshrink",
    .signature = "tanhshrink(x) -> Tensor",
    .samples = tanhshrink_samples,
};

constinit OperatorDef mish_gradient_op = {
    .name = "mish_gradient",
    .signature = "mish_gradient(g, x) -> Tensor",
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(mish_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef logsigmoid_gradient_op = {
    .name = "logsigmoid_gradient",
    .signature = "logsigmoid_gradient(g, x) -> Tensor",
    .infer = infer_same,
    .rule = elementwise_rule_of<Linear::kInFirst>,
    .kernel = DTORCH_KERNEL(logsigmoid_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

Tensor mish(const Tensor& x, Where where) { return record(mish_op, NoAttrs{}, {&x}, where); }
Tensor logsigmoid(const Tensor& x, Where where) { return record(logsigmoid_op, NoAttrs{}, {&x}, where); }
Tensor softsign(const Tensor& x, Where where) { return div(x, add(abs(x, where), 1, where), where); }
Tensor tanhshrink(const Tensor& x, Where where) { return sub(x, tanh(x, where), where); }

}  // namespace dtorch
