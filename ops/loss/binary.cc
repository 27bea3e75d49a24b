// binary_cross_entropy = -(target log(input) + (1 - target) log(1 - input)) with logarithms clamped at -100;
// binary_cross_entropy_with_logits(input, target[, pos_weight]) = (1 - target) input - (1 + (pos_weight - 1) target)
// log(sigmoid(input)); soft_margin_loss = log(1 + exp(-target input)). The kernels are LibTorch's own for the losses
// of elements; a weight is multiplied in, then they are reduced, so that a Partial weight passes (linear). Other
// inputs: same on every dim, with broadcasting, no Partial. Gradients: g times the derivatives, by elementwise
// operators.
#include "ops/loss/operators.h"
#include "ops/math/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_native.h>
#include <ATen/ops/binary_cross_entropy_with_logits_native.h>
#include <ATen/ops/soft_margin_loss_native.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {
namespace {

using namespace loss;
using math::fit_gradient;

std::vector<Tensor> bce_gradient(const GradientContext& context) {
  const Tensor x = context.input(0), target = context.input(1), g = context.grad_output(0);
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) {
    const Tensor spread = clamp(mul(x, 1 - x), 1e-12, {});
    gradients[0] = fit_gradient(mul(div(x - target, spread), g), context.input_meta(0));
  }
  if (context.needs_grad(1)) {
    const Tensor slope = clamp(log(1 - x), -100.0, {}) - clamp(log(x), -100.0, {});
    gradients[1] = fit_gradient(mul(slope, g), context.input_meta(1));
  }
  return gradients;
}

// log(sigmoid(x)), exact for large |x|.
Tensor log_sigmoid_of(const Tensor& x) { return minimum(x, zeros_like(x)) - log(exp(neg(abs(x))) + 1.0); }

std::vector<Tensor> logits_gradient(const GradientContext& context) {
  const Tensor x = context.input(0), target = context.input(1), g = context.grad_output(0);
  const Tensor extra = context.num_inputs() == 3 ? context.input(2) - 1.0 : Tensor();  // pos_weight - 1
  std::vector<Tensor> gradients(context.num_inputs());
  if (context.needs_grad(0)) {
    Tensor slope = sigmoid(x) - target;
    if (extra.defined()) slope = 1.0 - target - (mul(extra, target) + 1.0) * (1.0 - sigmoid(x));
    gradients[0] = fit_gradient(mul(slope, g), context.input_meta(0));
  }
  if (context.needs_grad(1)) {
    Tensor slope = neg(x);
    if (extra.defined()) slope = slope - mul(extra, log_sigmoid_of(x));
    gradients[1] = fit_gradient(mul(slope, g), context.input_meta(1));
  }
  return gradients;
}

// -target sigmoid(-target x)
std::vector<Tensor> soft_margin_gradient(const GradientContext& context) {
  const Tensor x = context.input(0), target = context.input(1);
  const Tensor slope = mul(neg(sigmoid(neg(mul(x, target)))), context.grad_output(0));
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) gradients[0] = fit_gradient(mul(slope, target), context.input_meta(0));
  if (context.needs_grad(1)) gradients[1] = fit_gradient(mul(slope, x), context.input_meta(1));
  return gradients;
}

#if DTORCH_WITH_KERNELS
constexpr int64_t kNoReduction = 0;

// Input i, broadcast to this device's part of the result.
at::Tensor spread_input(const KernelContext& context, size_t i) {
  return input(context, i).to(scalar_type(context.output_meta(0).dtype)).expand(output_sizes(context, 0));
}
void bce_kernel(KernelContext& context) {
  set_output(context, 0,
             DTORCH_BY_DEVICE(at::native::binary_cross_entropy_cpu, at::binary_cross_entropy)(
                 spread_input(context, 0), spread_input(context, 1), std::nullopt, kNoReduction));
}
void logits_kernel(KernelContext& context) {
  std::optional<at::Tensor> pos_weight;
  if (context.num_inputs() == 3) pos_weight = spread_input(context, 2);
  set_output(context, 0,
             at::native::binary_cross_entropy_with_logits(spread_input(context, 0), spread_input(context, 1),
                                                          std::nullopt, pos_weight, kNoReduction));
}
void soft_margin_kernel(KernelContext& context) {
  set_output(context, 0,
             at::native::soft_margin_loss(spread_input(context, 0), spread_input(context, 1), kNoReduction));
}
#endif

// Losses of elements times weight, reduced.
Tensor weighted_loss(const Tensor& losses, const Tensor& weight, Reduction reduction, const Where& where) {
  return reduced_loss(weight.defined() ? mul(losses, weight, where) : losses, reduction, where);
}

std::vector<Sample> bce_samples() {
  auto call = [](Reduction reduction) {
    return [reduction](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{binary_cross_entropy(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), reduction)};
    };
  };
  const auto unit = [](Shape shape, DType dtype) { return SampleInput{shape, dtype, SampleFill::kUnit}; };
  return {{.name = "mean, uneven",
           .inputs = {unit({5, 3}, kFloat32), unit({5, 3}, kFloat32)},
           .call = call(Reduction::kMean)},
          {.name = "sum, weight broadcast",
           .inputs = {unit({5, 3}, kFloat64), unit({5, 3}, kFloat64), math::normal({3}, kFloat64)},
           .call = call(Reduction::kSum)},
          {.name = "rows, a dim of size 1",
           .inputs = {unit({4, 1}, kFloat64), unit({4, 1}, kFloat64)},
           .call = call(Reduction::kNone)}};
}
std::vector<Sample> logits_samples() {
  auto call = [](Reduction reduction, bool with_weight) {
    return [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{binary_cross_entropy_with_logits(
          in[0], in[1], with_weight ? in[2] : Tensor(), reduction, in.size() > 2 && !with_weight ? in[2] : Tensor())};
    };
  };
  const SampleInput target{{5, 3}, kFloat32, SampleFill::kUnit}, wide{{5, 3}, kFloat64, SampleFill::kUnit};
  return {{.name = "mean, uneven", .inputs = {{{5, 3}}, target}, .call = call(Reduction::kMean, false)},
          {.name = "sum, pos_weight",
           .inputs = {{{5, 3}, kFloat64}, wide, {{3}, kFloat64, SampleFill::kPositive, 0, false}},
           .call = call(Reduction::kSum, false)},
          {.name = "rows, weight",
           .inputs = {{{5, 3}, kFloat64}, wide, {{5, 1}, kFloat64}},
           .call = call(Reduction::kNone, true)},
          {.name = "a dim of size 1",
           .inputs = {{{1, 4}}, {{1, 4}, kFloat32, SampleFill::kUnit}},
           .call = call(Reduction::kNone, false)}};
}
std::vector<Sample> soft_margin_samples() {
  return pair_samples([](const Tensor& a, const Tensor& b, Reduction r) { return soft_margin_loss(a, b, r); },
                      SampleFill::kNormal, SampleFill::kNormal);
}

}  // namespace

constinit OperatorDef binary_cross_entropy_op = {
    .name = "binary_cross_entropy",
    .signature = "binary_cross_entropy(input, target, weight, reduction) -> Tensor",
    .infer = infer_loss,
    .rule = math::elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(bce_kernel),
    .gradient = bce_gradient,
    .samples = bce_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "weight"};
constinit OperatorDef binary_cross_entropy_with_logits_op = {
    .name = "binary_cross_entropy_with_logits",
    .signature = "binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight) -> Tensor",
    .infer = infer_loss,
    .rule = math::elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(logits_kernel),
    .gradient = logits_gradient,
    .samples = logits_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "weight"};
constinit OperatorDef soft_margin_loss_op = {.name = "soft_margin_loss",
                                             .signature = "soft_margin_loss(input, target, reduction) -> Tensor",
                                             .infer = infer_loss,
                                             .rule = math::elementwise_rule_of<Linear::kNo>,
                                             .kernel = DTORCH_KERNEL(soft_margin_kernel),
                                             .gradient = soft_margin_gradient,
                                             .samples = soft_margin_samples,
                                             .placement_class = PlacementClass::kCombines};

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, Reduction reduction,
                            Where where) {
  SourceScope scope(where);
  return weighted_loss(record(binary_cross_entropy_op, NoAttrs{}, {&input, &target}, where), weight, reduction, where);
}
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight,
                                        Reduction reduction, const Tensor& pos_weight, Where where) {
  SourceScope scope(where);
  const Tensor losses =
      pos_weight.defined()
          ? record(binary_cross_entropy_with_logits_op, NoAttrs{}, {&input, &target, &pos_weight}, where)
          : record(binary_cross_entropy_with_logits_op, NoAttrs{}, {&input, &target}, where);
  return weighted_loss(losses, weight, reduction, where);
}
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, Reduction reduction, Where where) {
  SourceScope scope(where);
  return reduced_loss(record(soft_margin_loss_op, NoAttrs{}, {&input, &target}, where), reduction, where);
}

}  // namespace dtorch
