// hinge_embedding_loss and margin_ranking_loss: compositions of elementwise operators, then a sum or mean. Layouts:
// same on every dim, with broadcasting; what is sharded is combined by the reduction. No Partial input: none is linear.
#include "ops/loss/operators.h"
#include "ops/math/operators.h"

namespace dtorch {
namespace {

using namespace loss;

// 1 and -1.
Tensor signs(const Tensor& x) { return where(gt(x, 0), ones_like(x), full_like(x, -1)); }

std::vector<Sample> hinge_samples() {
  std::vector<Sample> samples = pair_samples(
      [](const Tensor& x, const Tensor& target, Reduction r) { return hinge_embedding_loss(x, signs(target), 0.8, r); },
      SampleFill::kNormal, SampleFill::kNormal);
  for (Sample& sample : samples) sample.inputs[1].differentiable = false;
  return samples;
}
std::vector<Sample> ranking_samples() {
  auto call = [](Reduction reduction) {
    return [reduction](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{margin_ranking_loss(in[0], in[1], in[2], 0.3, reduction)};
    };
  };
  return {{.name = "mean, uneven", .inputs = {{{5}}, {{5}}, {{5}}}, .call = call(Reduction::kMean)},
          {.name = "rows, broadcast, a dim of size 1",
           .inputs = {{{3, 1}, kFloat64}, {{3, 2}, kFloat64}, {{2}, kFloat64}},
           .call = call(Reduction::kNone)}};
}

}  // namespace

constinit OperatorDef hinge_embedding_loss_op = {
    .name = "hinge_embedding_loss",
    .signature = "hinge_embedding_loss(input, target, margin, reduction) -> Tensor",
    .samples = hinge_samples,
    .placement_class = PlacementClass::kCombines};
constinit OperatorDef margin_ranking_loss_op = {
    .name = "margin_ranking_loss",
    .signature = "margin_ranking_loss(input1, input2, target, margin, reduction) -> Tensor",
    .samples = ranking_samples,
    .placement_class = PlacementClass::kCombines};

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin, Reduction reduction,
                            Where place) {
  SourceScope scope(place);
  const Tensor below = clamp(sub(margin, input, place), 0.0, {}, place);
  const Tensor losses =
      add(where(ne(target, 1, place), below, 0.0, place), where(ne(target, -1, place), input, 0.0, place), place);
  return reduced_loss(losses, reduction, place);
}

Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                           Reduction reduction, Where where) {
  SourceScope scope(where);
  const Tensor wrong = mul(neg(target, where), sub(input1, input2, where), where);
  return reduced_loss(clamp(add(wrong, margin, where), 0.0, {}, where), reduction, where);
}

}  // namespace dtorch
