// mse_loss = (input - target)^2 and l1_loss = |input - target| (compositions), smooth_l1_loss and huber_loss (kernels
// of LibTorch's own for the losses of elements, then a sum or mean). Layouts: same on every dim, with broadcasting;
// what is sharded is combined by the reduction. No Partial input: none is linear. Gradients of the kernels: g
// clamp((input - target) / beta, -1, 1) and g clamp(input - target, -delta, delta); target: its negative.
#include "ops/loss/operators.h"
#include "ops/math/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/huber_loss_native.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/smooth_l1_loss_cpu_dispatch.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {
namespace {

using namespace loss;

struct KneeAttrs {
  double knee = 1.0;  // beta, delta
  template <class V>
  void fields(V& v) {
    v("knee", knee);
  }
};

// slope: the derivative with respect to input.
std::vector<Tensor> gradients_of(const GradientContext& context, const Tensor& slope) {
  const Tensor gradient = mul(slope, context.grad_output(0));
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) gradients[0] = math::fit_gradient(gradient, context.input_meta(0));
  if (context.needs_grad(1)) gradients[1] = math::fit_gradient(neg(gradient), context.input_meta(1));
  return gradients;
}
std::vector<Tensor> smooth_l1_gradient(const GradientContext& context) {
  const double beta = context.attributes<KneeAttrs>().knee;
  const Tensor difference = sub(context.input(0), context.input(1));
  return gradients_of(context, beta == 0 ? sign(difference) : clamp(div(difference, beta), -1.0, 1.0));
}
std::vector<Tensor> huber_gradient(const GradientContext& context) {
  const double delta = context.attributes<KneeAttrs>().knee;
  return gradients_of(context, clamp(sub(context.input(0), context.input(1)), -delta, delta));
}

#if DTORCH_WITH_KERNELS
constexpr int64_t kNoReduction = 0;

// Both operands in the result's dtype.
std::pair<at::Tensor, at::Tensor> promoted(const KernelContext& context) {
  const at::ScalarType type = scalar_type(context.output_meta(0).dtype);
  return {input(context, 0).to(type), input(context, 1).to(type)};
}
void smooth_l1_kernel(KernelContext& context) {
  const auto [x, target] = promoted(context);
  set_output(context, 0, DTORCH_ATEN(smooth_l1_loss)(x, target, kNoReduction, context.attributes<KneeAttrs>().knee));
}
void huber_kernel(KernelContext& context) {
  const auto [x, target] = promoted(context);
  set_output(context, 0,
             DTORCH_BY_DEVICE(at::native::huber_loss, at::huber_loss)(x, target, kNoReduction,
                                                                      context.attributes<KneeAttrs>().knee));
}
#endif

template <auto kFunction>
std::vector<Sample> distance_samples() {
  return pair_samples(
      [](const Tensor& a, const Tensor& b, Reduction r) { return kFunction(a, b, r, Where::current()); },
      SampleFill::kNormal, SampleFill::kPositive);
}
template <auto kFunction>
std::vector<Sample> knee_samples() {
  return pair_samples(
      [](const Tensor& a, const Tensor& b, Reduction r) { return kFunction(a, b, r, 0.7, Where::current()); },
      SampleFill::kNormal, SampleFill::kPositive);
}

}  // namespace

constinit OperatorDef mse_loss_op = {.name = "mse_loss",
                                     .signature = "mse_loss(input, target, reduction) -> Tensor",
                                     .samples = distance_samples<mse_loss>,
                                     .placement_class = PlacementClass::kCombines};
constinit OperatorDef l1_loss_op = {.name = "l1_loss",
                                    .signature = "l1_loss(input, target, reduction) -> Tensor",
                                    .samples = distance_samples<l1_loss>,
                                    .placement_class = PlacementClass::kCombines};
constinit OperatorDef smooth_l1_loss_op = {.name = "smooth_l1_loss",
                                           .signature = "smooth_l1_loss(input, target, reduction, beta) -> Tensor",
                                           .attributes = attribute_codec<KneeAttrs>(),
                                           .infer = infer_loss,
                                           .rule = math::elementwise_rule_of<Linear::kNo>,
                                           .kernel = DTORCH_KERNEL(smooth_l1_kernel),
                                           .gradient = smooth_l1_gradient,
                                           .samples = knee_samples<smooth_l1_loss>,
                                           .placement_class = PlacementClass::kCombines};
constinit OperatorDef huber_loss_op = {.name = "huber_loss",
                                       .signature = "huber_loss(input, target, reduction, delta) -> Tensor",
                                       .attributes = attribute_codec<KneeAttrs>(),
                                       .infer = infer_loss,
                                       .rule = math::elementwise_rule_of<Linear::kNo>,
                                       .kernel = DTORCH_KERNEL(huber_kernel),
                                       .gradient = huber_gradient,
                                       .samples = knee_samples<huber_loss>,
                                       .placement_class = PlacementClass::kCombines};

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction, Where where) {
  SourceScope scope(where);
  return reduced_loss(square(sub(input, target, where), where), reduction, where);
}
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction, Where where) {
  SourceScope scope(where);
  return reduced_loss(abs(sub(input, target, where), where), reduction, where);
}
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction, double beta, Where where) {
  if (!(beta >= 0)) {
    throw at_line(UserError("[smooth_l1_loss] beta is " + std::to_string(beta) + ", allowed are 0 and more"), where);
  }
  SourceScope scope(where);
  return reduced_loss(record(smooth_l1_loss_op, KneeAttrs{beta}, {&input, &target}, where), reduction, where);
}
Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction, double delta, Where where) {
  if (!(delta > 0)) {
    throw at_line(UserError("[huber_loss] delta is " + std::to_string(delta) + ", it must be positive"), where);
  }
  SourceScope scope(where);
  return reduced_loss(record(huber_loss_op, KneeAttrs{delta}, {&input, &target}, where), reduction, where);
}

}  // namespace dtorch
