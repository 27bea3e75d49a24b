#include "ops/nn/operators.h"

#include <algorithm>

#include "ops/nn/moe_rows.h"
#include "ops/nn/ring_step.h"

namespace dtorch {

std::vector<OperatorDef*> nn_operators() {
  return {&softmax_op,
          &softmax_grad_op,
          &log_softmax_op,
          &log_softmax_grad_op,
          &embedding_op,
          &embedding_grad_op,
          &rms_norm_op,
          &rms_norm_grad_op,
          &layer_norm_op,
          &layer_norm_grad_op,
          &rotary_embedding_op,
          &sdpa_op,
          &sdpa_grad_op,
          &einsum_op,
          &dropout_op,
          &nll_sum_op,
          &row_max_op,
          &row_sumexp_op,
          &row_pick_op,
          &row_loss_op,
          &cross_entropy_grad_op,
          &count_valid_op,
          &adamw_step_op,
          &sgd_step_op,
          &sum_of_squares_op,
          &scale_all_op,
          &topk_gates_op,
          &topk_gates_grad_op,
          &moe_experts_op,
          &moe_experts_grad_op,
          &moe_dispatch_op,
          &moe_combine_op,
          &moe_experts_rows_op,
          &moe_experts_rows_grad_op,
          &ring_attention_step_op,
          &ring_attention_grad_step_op,
          &ring_split_op,
          &ring_join_op,
          &rotary_at_op,
          &cache_append_op,
          &cached_attention_op,
          &masked_sdpa_op,
          &masked_sdpa_grad_op,
          &softmin_op,
          &glu_op,
          &add_gumbel_op,
          &gumbel_softmax_op,
          &categorical_op,
          &bilinear_op,
          &feature_dropout_op,
          &alpha_dropout_op};
}

namespace nn_ops {

Letters letters(int64_t ndim, int16_t first) {
  Letters out;
  for (int64_t d = 0; d < ndim; ++d) out.push_back(static_cast<int16_t>(first + d));
  return out;
}

Rule rule_of(std::vector<Letters> inputs, std::vector<Letters> outputs, std::span<const int16_t> blocked,
             const std::vector<std::vector<size_t>>& linear) {
  Rule rule;
  rule.rows.push_back({std::vector<Placement>(inputs.size()), std::vector<Placement>(outputs.size())});
  auto placement_of = [](const Letters& operand, int16_t letter, const Placement& otherwise) {
    auto found = std::find(operand.begin(), operand.end(), letter);
    return found == operand.end() ? otherwise : Shard(found - operand.begin());
  };
  std::vector<int16_t> done(blocked.begin(), blocked.end());
  done.push_back(kNoLetter);
  for (const Letters& input : inputs) {
    for (int16_t letter : input) {
      if (std::find(done.begin(), done.end(), letter) != done.end()) continue;
      done.push_back(letter);
      Row row;
      for (const Letters& operand : inputs) row.inputs.push_back(placement_of(operand, letter, Replicate()));
      for (const Letters& operand : outputs) row.outputs.push_back(placement_of(operand, letter, Partial()));
      rule.rows.push_back(std::move(row));
    }
  }
  for (const std::vector<size_t>& together : linear) {
    Row row{std::vector<Placement>(inputs.size()), std::vector<Placement>(outputs.size(), Partial())};
    for (size_t i : together) row.inputs[i] = Partial();
    rule.rows.push_back(std::move(row));
  }
  rule.input_letters = std::move(inputs);
  rule.output_letters = std::move(outputs);
  return rule;
}

void need_floating(const InferContext& context, size_t input) {
  if (is_floating(context.dtype(input))) return;
  throw DTypeError(std::string("[") + context.op + "] input " + std::to_string(input) + " is " +
                   name_of(context.dtype(input)) + ", allowed are floating types; convert it with to(kFloat32)");
}

void need_same_shape(const InferContext& context, size_t a, size_t b) {
  if (context.shape(a) == context.shape(b)) return;
  throw ShapeError(std::string("[") + context.op + "] inputs " + std::to_string(a) + " and " + std::to_string(b) +
                   " have shapes " + context.shape(a).str() + " and " + context.shape(b).str() +
                   ", they must be equal");
}

void need_same_dtype(const InferContext& context, size_t a, size_t b) {
  if (context.dtype(a) == context.dtype(b)) return;
  throw DTypeError(std::string("[") + context.op + "] inputs " + std::to_string(a) + " and " + std::to_string(b) +
                   " are " + name_of(context.dtype(a)) + " and " + name_of(context.dtype(b)) +
                   ", they must be equal; convert one with to()");
}

}  // namespace nn_ops
}  // namespace dtorch
