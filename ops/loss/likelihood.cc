// kl_div = target (log(target) - input), 0 where target is 0, or exp(target) (target - input) with log_target:
// LibTorch's own for the losses of elements. gaussian_nll_loss = (log(var) + (input - target)^2 / var) / 2 and
// poisson_nll_loss = exp(input) - target input are compositions. Layouts: same on every dim, with broadcasting; what is
// sharded is combined by the reduction. No Partial input: none is linear.
#include <cmath>
#include <numbers>

#include "ops/loss/operators.h"
#include "ops/math/operators.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/kl_div_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace loss;
using math::fit_gradient;

struct KlAttrs {
  bool log_target = false;
  template <class V>
  void fields(V& v) {
    v("log_target", log_target);
  }
};

std::vector<Tensor> kl_gradient(const GradientContext& context) {
  const bool log_target = context.attributes<KlAttrs>().log_target;
  const Tensor target = context.input(1), g = context.grad_output(0);
  const Tensor probability = log_target ? exp(target) : target;
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) gradients[0] = fit_gradient(neg(mul(probability, g)), context.input_meta(0));
  if (context.needs_grad(1)) {
    const Tensor x = context.input(0);
    const Tensor slope = log_target ? mul(probability, target - x + 1.0) : log(target) + 1.0 - x;
    gradients[1] = fit_gradient(mul(slope, g), context.input_meta(1));
  }
  return gradients;
}

#if DTORCH_WITH_KERNELS
void kl_kernel(KernelContext& context) {
  const at::ScalarType type = scalar_type(context.output_meta(0).dtype);
  set_output(context, 0,
             at::native::kl_div(input(context, 0).to(type), input(context, 1).to(type), /*reduction none*/ 0,
                                context.attributes<KlAttrs>().log_target));
}
#endif

std::vector<Sample> kl_samples() {
  std::vector<Sample> samples =
      pair_samples([](const Tensor& a, const Tensor& b, Reduction r) { return kl_div(a, b, r); }, SampleFill::kNormal,
                   SampleFill::kPositive);
  samples.push_back({.name = "log_target",
                     .inputs = {{{5, 3}, kFloat64}, {{5, 3}, kFloat64}},
                     .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{kl_div(in[0], in[1], Reduction::kMean, true)};
                     }});
  return samples;
}
std::vector<Sample> gaussian_samples() {
  auto call = [](Reduction reduction, bool full) {
    return [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{gaussian_nll_loss(in[0], in[1], in[2], full, 0.3, reduction)};
    };
  };
  return {{.name = "mean, uneven",
           .inputs = {{{5, 3}}, {{5, 3}}, {{5, 3}, kFloat32, SampleFill::kPositive}},
           .call = call(Reduction::kMean, false)},
          {.name = "rows, one variance a row",
           .inputs = {{{5, 1}, kFloat64}, {{5, 1}, kFloat64}, {{5}, kFloat64, SampleFill::kPositive}},
           .call = call(Reduction::kNone, true)}};
}
template <bool kLogInput, bool kFull>
Tensor poisson_call(const Tensor& input, const Tensor& target, Reduction reduction) {
  return poisson_nll_loss(input, target, kLogInput, kFull, 1e-8, reduction);
}
std::vector<Sample> poisson_samples() {
  std::vector<Sample> samples = pair_samples(poisson_call<true, false>, SampleFill::kNormal, SampleFill::kPositive);
  samples.push_back(
      {.name = "counts, full",
       .inputs = {{{5, 3}, kFloat64, SampleFill::kPositive}, {{5, 3}, kFloat64, SampleFill::kPositive, 0, false}},
       .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{poisson_call<false, true>(in[0], in[1], Reduction::kSum)};
       }});
  return samples;
}

// var, at least eps, with var's gradient passed on unchanged.
Tensor clamped_variance(const Tensor& var, double eps, const Where& where) {
  Tensor clamped[1];
  {
    NoGrad no_grad;
    clamped[0] = clamp(var.detach(), eps, {}, where);
  }
  set_custom_gradient(
      "gaussian_nll_loss", {&var, 1}, clamped,
      [](const GradientContext& context) { return std::vector<Tensor>{context.grad_output(0)}; }, where);
  return clamped[0];
}

}  // namespace

constinit OperatorDef kl_div_op = {.name = "kl_div",
                                   .signature = "kl_div(input, target, reduction, log_target) -> Tensor",
                                   .attributes = attribute_codec<KlAttrs>(),
                                   .infer = infer_loss,
                                   .rule = math::elementwise_rule_of<Linear::kNo>,
                                   .kernel = DTORCH_KERNEL(kl_kernel),
                                   .gradient = kl_gradient,
                                   .samples = kl_samples,
                                   .placement_class = PlacementClass::kCombines};
constinit OperatorDef gaussian_nll_loss_op = {
    .name = "gaussian_nll_loss",
    .signature = "gaussian_nll_loss(input, target, var, full, eps, reduction) -> Tensor",
    .samples = gaussian_samples,
    .placement_class = PlacementClass::kCombines};
constinit OperatorDef poisson_nll_loss_op = {
    .name = "poisson_nll_loss",
    .signature = "poisson_nll_loss(input, target, log_input, full, eps, reduction) -> Tensor",
    .samples = poisson_samples,
    .placement_class = PlacementClass::kCombines};

Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction, bool log_target, Where where) {
  SourceScope scope(where);
  return reduced_loss(record(kl_div_op, KlAttrs{log_target}, {&input, &target}, where), reduction, where);
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full, double eps,
                         Reduction reduction, Where where) {
  SourceScope scope(where);
  if (!(eps > 0)) {
    throw at_line(UserError("[gaussian_nll_loss] eps is " + std::to_string(eps) + ", it must be positive"), where);
  }
  const Shape& shape = input.shape();
  Tensor spread = var;
  if (var.ndim() + 1 == input.ndim() && Shape(shape.begin(), shape.end() - 1) == var.shape()) {
    spread = unsqueeze(var, -1, where);
  } else if (var.shape() != shape &&
             !(var.ndim() == input.ndim() && var.ndim() > 0 && var.shape().back() == 1 &&
               Shape(shape.begin(), shape.end() - 1) == Shape(var.shape().begin(), var.shape().end() - 1))) {
    throw at_line(ShapeError("[gaussian_nll_loss] var has shape " + var.shape().str() + ", input " + shape.str() +
                             "; allowed are input's shape, and that with the last dim 1 or missing"),
                  where);
  }
  spread = clamped_variance(spread, eps, where);
  const Tensor distance = div(square(sub(input, target, where), where), spread, where);
  Tensor losses = mul(add(log(spread, where), distance, where), 0.5, where);
  if (full) losses = add(losses, 0.5 * std::log(2 * std::numbers::pi), where);
  return reduced_loss(losses, reduction, where);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full, double eps,
                        Reduction reduction, Where place) {
  SourceScope scope(place);
  Tensor losses = log_input ? sub(exp(input, place), mul(target, input, place), place)
                            : sub(input, mul(target, log(add(input, eps, place), place), place), place);
  if (full) {
    const Tensor logarithm = mul(target, log(target, place), place);
    const Tensor tail = mul(log(mul(target, 2 * std::numbers::pi, place), place), 0.5, place);
    const Tensor stirling = add(sub(logarithm, target, place), tail, place);
    losses = add(losses, masked_fill(stirling, le(target, 1, place), 0, place), place);
  }
  return reduced_loss(losses, reduction, place);
}

}  // namespace dtorch
