// The operators of this room, and what its files share. Not for users.
#pragma once
#include <initializer_list>
#include <vector>

#include "ops/def/operator_def.h"
#include "ops/loss/functions.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> loss_operators();
extern OperatorDef mse_loss_op, l1_loss_op, smooth_l1_loss_op, huber_loss_op, binary_cross_entropy_op,
    binary_cross_entropy_with_logits_op, kl_div_op, soft_margin_loss_op, hinge_embedding_loss_op,
    margin_ranking_loss_op, gaussian_nll_loss_op, poisson_nll_loss_op, nll_loss_op, nll_total_op, nll_grad_op,
    target_weight_op, multi_margin_loss_op, multi_margin_grad_op, cosine_similarity_op, pairwise_distance_op,
    cosine_embedding_loss_op, triplet_margin_loss_op, normalize_op;

namespace loss {

// Broadcast shape and promoted dtype of all inputs, which are floating.
std::vector<OutputMeta> infer_loss(const InferContext& context);

// Losses of elements, reduced. Pending ones stay pending.
Tensor reduced_loss(const Tensor& losses, Reduction reduction, const Where& where);

// `result`, computed from `inputs`, with what became Partial although no input was reduced to Replicate.
Tensor combined(const char* op, std::initializer_list<const Tensor*> inputs, const Tensor& result, const Where& where);

// nll_loss of any place of the class dim; target has input's dims without it. Where op's inputs may not combine, throws
// PlacementError of `op`.
struct NllCall {
  const char* op;
  int64_t class_dim;
  int64_t ignore_index;
  Reduction reduction;
};
Tensor nll(const NllCall& call, const Tensor& input, const Tensor& target, const Tensor& weight, const Where& where);
// The total weight of the targets (undefined weight: their number) as a scalar of `dtype`, at least 1 when it is 0.
Tensor total_target_weight(const NllCall& call, const Tensor& target, const Tensor& weight, DType dtype,
                           const Where& where);

// p-norm along dim; its gradient is 0 where the norm is.
Tensor p_norm(const Tensor& x, double p, int64_t dim, bool keepdim, const Where& where);

// Samples of a loss of two inputs: uneven mean, broadcast sum, and rows with a dim of size 1.
std::vector<Sample> pair_samples(Tensor (*function)(const Tensor&, const Tensor&, Reduction), SampleFill input,
                                 SampleFill target);

}  // namespace loss
}  // namespace dtorch
