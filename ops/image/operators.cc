// The list of the operators of this room, and what its files share.
#include "ops/image/operators.h"

#include <algorithm>

#include "ops/image/halo.h"
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

AxisList sharding_axes(const InferContext& context, std::span<const OperandDim> dims) {
  AxisList axes;
  const auto add = [&](int8_t axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  };
  for (const OperandDim& operand : dims) {
    for (int8_t axis : context.inputs[operand.input]->layout.axes_of_dim(operand.dim)) add(axis);
  }
  if (!axes.empty()) return axes;
  const DeviceMesh& mesh = context.inputs[0]->layout.mesh();
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.shape()[axis] > 1) add(static_cast<int8_t>(axis));
  }
  return axes;
}

bool groups_stay_whole(const DeviceMesh& mesh, const AxisList& axes, int64_t groups, int64_t first_size,
                       int64_t second_size) {
  Placements placements(mesh.num_axes(), Replicate());
  for (int8_t axis : axes) placements[axis] = Shard(0);
  const Layout layout(mesh, placements, 1, axes);
  const std::vector<int64_t> first = part_offsets(layout, 0, first_size), second = part_offsets(layout, 0, second_size);
  for (size_t part = 0; part < first.size(); ++part) {
    const int64_t group = first_size == 0 ? 0 : first[part] * groups / first_size;
    if (group * first_size != first[part] * groups || group * second_size != second[part] * groups) return false;
  }
  return true;
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
