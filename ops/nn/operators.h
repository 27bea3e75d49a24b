// The operators of this room, and what its files share. Not for users.
#pragma once
#include <span>
#include <vector>

#include "ops/def/operator_def.h"
#include "ops/nn/functions.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> nn_operators();
extern OperatorDef softmax_op, softmax_grad_op, log_softmax_op, log_softmax_grad_op;
extern OperatorDef embedding_op, embedding_grad_op;
extern OperatorDef rms_norm_op, rms_norm_grad_op, layer_norm_op, layer_norm_grad_op;
extern OperatorDef rotary_embedding_op, sdpa_op, sdpa_grad_op, einsum_op, dropout_op;
extern OperatorDef nll_sum_op, row_max_op, row_sumexp_op, row_pick_op, row_loss_op, cross_entropy_grad_op,
    count_valid_op;
extern OperatorDef masked_sdpa_op, masked_sdpa_grad_op, softmin_op, glu_op, add_gumbel_op, gumbel_softmax_op,
    categorical_op, bilinear_op, feature_dropout_op, alpha_dropout_op;
extern OperatorDef rotary_at_op, cache_append_op, cached_attention_op;
extern OperatorDef topk_gates_op, topk_gates_grad_op, moe_experts_op, moe_experts_grad_op;
extern OperatorDef adamw_step_op, sgd_step_op, sum_of_squares_op, scale_all_op;

namespace nn_ops {

// Letters first, first + 1, ... of `ndim` dims.
Letters letters(int64_t ndim, int16_t first = 1);

// A rule from letters alone. Every letter that isn't in `blocked` gets a row that shards it wherever it stands; outputs
// without it become Partial(sum). `linear`: each entry lists inputs that may be Partial(sum) together, the others
// Replicate; all outputs are then Partial.
Rule rule_of(std::vector<Letters> inputs, std::vector<Letters> outputs, std::span<const int16_t> blocked,
             const std::vector<std::vector<size_t>>& linear = {});

// cross_entropy with class weights, label smoothing or probabilities as targets, and its samples.
Tensor cross_entropy_with_options(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options,
                                  const Where& where);
std::vector<Sample> cross_entropy_option_samples();

void need_floating(const InferContext& context, size_t input);
void need_same_shape(const InferContext& context, size_t a, size_t b);
void need_same_dtype(const InferContext& context, size_t a, size_t b);

}  // namespace nn_ops
}  // namespace dtorch
