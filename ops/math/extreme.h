// Largest and smallest values: what max, min, argmax and argmin over sharded dims share. Private to this room.
#pragma once
#include "ops/math/operators.h"

namespace dtorch::math {

struct ValueAndIndex {
  Tensor values, indices;
};
// Over the dims in `dims` (one of them, or all), some of which are sharded: every device finds the best of its part and
// its global index; these candidates, one a device, are gathered, and the best with the smallest index is chosen.
// Index: along the dim; over several dims: in the flattened tensor. NaN is better than everything. No gradient.
// Throws PlacementError of `op` when implicit redistribution is off.
ValueAndIndex combined_extreme(const char* op, const Tensor& x, const std::vector<int64_t>& dims, bool keepdim,
                               bool largest, const Where& where);
bool any_sharded(const Tensor& x, const std::vector<int64_t>& dims);

}  // namespace dtorch::math
