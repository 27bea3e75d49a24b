// The operators of this room, and what its files share. Not for users.
#pragma once
#include <vector>

#include "ops/def/operator_def.h"
#include "ops/image/functions.h"
#include "runtime/client/call_error.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> image_operators();
extern OperatorDef halo_edges_op, halo_edges_grad_op, halo_windows_op, halo_windows_grad_op;
extern OperatorDef conv1d_op, conv2d_op, conv_transpose1d_op, conv_transpose2d_op, conv_input_grad_op,
    conv_weight_grad_op;
extern OperatorDef max_pool1d_op, max_pool2d_op, max_pool_grad_op, avg_pool1d_op, avg_pool2d_op, avg_pool_grad_op;
extern OperatorDef adaptive_avg_pool1d_op, adaptive_avg_pool2d_op, adaptive_avg_pool_grad_op, adaptive_max_pool2d_op,
    adaptive_max_pool_grad_op;
extern OperatorDef interpolate_op, interpolate_grad_op, pixel_shuffle_op, pixel_unshuffle_op, channel_shuffle_op;
extern OperatorDef unfold_op, fold_op;
extern OperatorDef norm_sums_op, norm_squares_op, norm_apply_op, norm_grad_sums_op, norm_input_grad_op,
    norm_weight_grad_op, batch_norm_op, group_norm_op, instance_norm_op;

namespace image {

// As nn_ops::rule_of; each entry of `linear` lists inputs that may be Partial(sum) together or Partial(avg) together.
Rule letters_rule(std::vector<Letters> inputs, std::vector<Letters> outputs,
                  const std::vector<std::vector<size_t>>& linear);

struct OperandDim {
  size_t input;
  int64_t dim;
};
// Axes that shard one of these dims, as one list; where none does, all axes of the mesh, so that what the matcher then
// suggests is legal.
AxisList sharding_axes(const InferContext& context, std::span<const OperandDim> dims);

// Whether parts over these axes of two dims made of `groups` groups each are the same whole groups.
bool groups_stay_whole(const DeviceMesh& mesh, const AxisList& axes, int64_t groups, int64_t first_size,
                       int64_t second_size);

// Sizes of a spatial attribute: one number stands for all `count` dims. Throws ShapeError of `op` when it has another
// number of them or one is less than `least`.
std::vector<int64_t> spread(const char* op, const char* what, const Extents& given, size_t count, int64_t least,
                            const Where& where);

// Whether x has a batch dim, with which it has ndim dims; else one less. Throws ShapeError of `op` for other numbers.
bool has_batch(const char* op, const Tensor& x, int64_t ndim, const Where& where);

}  // namespace image
}  // namespace dtorch
