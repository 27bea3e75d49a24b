// The list of the operators of this room, and what its files share.
#include "ops/image/operators.h"

#include <algorithm>

#include "ops/nn/operators.h"

namespace dtorch {

std::vector<OperatorDef*> image_operators() {
  return {&halo_edges_op,
          &halo_edges_grad_op,
          &halo_windows_op,
          &halo_windows_grad_op,
          &conv1d_op,
          &conv2d_op,
          &conv_transpose1d_op,
          &conv_transpose2d_op,
          &conv_input_grad_op,
          &conv_weight_grad_op,
          &max_pool1d_op,
          &max_pool2d_op,
          &max_pool_grad_op,
          &avg_pool1d_op,
          &avg_pool2d_op,
          &avg_pool_grad_op,
          &adaptive_avg_pool1d_op,
          &adaptive_avg_pool2d_op,
          &adaptive_avg_pool_grad_op,
          &adaptive_max_pool2d_op,
          &adaptive_max_pool_grad_op,
          &interpolate_op,
          &interpolate_grad_op,
          &pixel_shuffle_op,
          &pixel_unshuffle_op,
          &channel_shuffle_op,
          &unfold_op,
          &fold_op,
          &norm_sums_op,
          &norm_squares_op,
          &norm_apply_op,
          &norm_grad_sums_op,
          &norm_input_grad_op,
          &norm_weight_grad_op,
          &batch_norm_op,
          &group_norm_op,
          &instance_norm_op};
}

namespace image {

Rule letters_rule(std::vector<Letters> inputs, std::vector<Letters> outputs,
                  const std::vector<std::vector<size_t>>& linear) {
  const size_t num_inputs = inputs.size(), num_outputs = outputs.size();
  Rule rule = nn_ops::rule_of(std::move(inputs), std::move(outputs), {});
  for (const std::vector<size_t>& together : linear) {
    for (ReduceOp kind : {kSum, kAvg}) {
      Row row{std::vector<Placement>(num_inputs), std::vector<Placement>(num_outputs, Partial(kind))};
      for (size_t i : together) row.inputs[i] = Partial(kind);
      rule.rows.push_back(std::move(row));
    }
  }
  return rule;
}

std::vector<int64_t> spread(const char* op, const char* what, const Extents& given, size_t count, int64_t least,
                            const Where& where) {
  std::vector<int64_t> sizes = given.sizes;
  if (sizes.size() == 1) sizes.assign(count, given.sizes[0]);
  if (sizes.size() != count || std::ranges::any_of(sizes, [&](int64_t size) { return size < least; })) {
    throw at_line(
        ShapeError("[" + std::string(op) + "] " + what + " is " + Shape(sizes.begin(), sizes.end()).str() +
                   ", allowed are one number or " + std::to_string(count) + ", each at least " + std::to_string(least)),
        where);
  }
  return sizes;
}

bool has_batch(const char* op, const Tensor& x, int64_t ndim, const Where& where) {
  if (x.ndim() == ndim || x.ndim() == ndim - 1) return x.ndim() == ndim;
  throw at_line(ShapeError("[" + std::string(op) + "] x has shape " + x.shape().str() + ", allowed are " +
                           std::to_string(ndim) + " dims, or " + std::to_string(ndim - 1) + " without a batch"),
                where);
}

}  // namespace image
}  // namespace dtorch
