// The operators of this room, and what its files share. Not for users.
#pragma once
#include <vector>

#include "ops/def/operator_def.h"
#include "ops/shape/functions.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> shape_operators();
extern OperatorDef reshape_op, permute_op, unsqueeze_op, squeeze_op, expand_op, contiguous_op, slice_op,
    slice_gradient_op, cat_op, split_op, chunk_op;

namespace shaping {

// Of an operator that keeps dims: from[d] is the input's dim that output dim d is, or -1. Partial of every kind passes.
Rule dim_map_rule(int64_t input_ndim, std::span<const int64_t> from);
// As dim_map_rule with every dim kept, but `blocked` must not be sharded; for any number of inputs and outputs of one
// rank.
Rule all_but_one_rule(int64_t ndim, int64_t blocked, size_t num_inputs, size_t num_outputs);
// The axes that shard `dim` become Replicate: what `op` does before its kernel. Throws PlacementError when implicit
// redistribution is off.
Tensor gather_dim(const char* op, const Tensor& x, int64_t dim, const Where& where);

}  // namespace shaping
}  // namespace dtorch
