// The list of the operators of this room, and what its files share.
#include "ops/loss/operators.h"

#include "ops/math/operators.h"
#include "ops/move/combine.h"
#include "ops/nn/operators.h"

namespace dtorch {

std::vector<OperatorDef*> loss_operators() {
  return {&mse_loss_op,
          &l1_loss_op,
          &smooth_l1_loss_op,
          &huber_loss_op,
          &binary_cross_entropy_op,
          &binary_cross_entropy_with_logits_op,
          &kl_div_op,
          &soft_margin_loss_op,
          &hinge_embedding_loss_op,
          &margin_ranking_loss_op,
          &gaussian_nll_loss_op,
          &poisson_nll_loss_op,
          &nll_loss_op,
          &nll_total_op,
          &nll_grad_op,
          &target_weight_op,
          &multi_margin_loss_op,
          &multi_margin_grad_op,
          &cosine_similarity_op,
          &pairwise_distance_op,
          &cosine_embedding_loss_op,
          &triplet_margin_loss_op,
          &normalize_op};
}

namespace loss {

std::vector<OutputMeta> infer_loss(const InferContext& context) {
  for (size_t i = 0; i < context.inputs.size(); ++i) nn_ops::need_floating(context, i);
  return {{math::broadcast_inputs(context), math::result_dtype(context.inputs)}};
}

Tensor reduced_loss(const Tensor& losses, Reduction reduction, const Where& where) {
  if (reduction == Reduction::kNone) return losses;
  return reduction == Reduction::kSum ? sum(losses, where) : mean(losses, where);
}

Tensor combined(const char* op, std::initializer_list<const Tensor*> inputs, const Tensor& result, const Where& where) {
  Placements placements = result.placements();
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_partial()) continue;
    bool was_pending = false;
    for (const Tensor* input : inputs) was_pending |= input->defined() && input->layout().placement(axis).is_partial();
    if (!was_pending) placements[axis] = Replicate();
  }
  const Layout layout = result.layout().with_placements(placements, result.ndim());
  if (layout == result.layout()) return result;
  require_implicit_redistribution(op, result, layout, where);
  return result.redistribute(layout, where);
}

std::vector<Sample> pair_samples(Tensor (*function)(const Tensor&, const Tensor&, Reduction), SampleFill input,
                                 SampleFill target) {
  const auto call = [function](Reduction reduction) {
    return [=](const std::vector<Tensor>& in) { return std::vector<Tensor>{function(in[0], in[1], reduction)}; };
  };
  return {{.name = "mean, uneven",
           .inputs = {{{5, 3}, kFloat32, input}, {{5, 3}, kFloat32, target}},
           .call = call(Reduction::kMean)},
          {.name = "sum, broadcast, float64",
           .inputs = {{{2, 5, 3}, kFloat64, input}, {{5, 1}, kFloat64, target}},
           .call = call(Reduction::kSum)},
          {.name = "rows, a dim of size 1",
           .inputs = {{{4, 1}, kFloat64, input}, {{4, 1}, kFloat64, target}},
           .call = call(Reduction::kNone)},
          {.name = "empty rows",
           .inputs = {{{0, 3}, kFloat32, input}, {{0, 3}, kFloat32, target}},
           .call = call(Reduction::kNone)}};
}

}  // namespace loss
}  // namespace dtorch
