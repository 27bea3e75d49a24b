// Spatial dims that are sharded: every device gets the rows that its part of a result reads, of which only the boundary
// rows of the parts travel. Shared by convolution, pooling and interpolation; not for users.
#pragma once
#include <functional>

#include "runtime/client/tensor.h"

namespace dtorch::image {

// What result row o reads of one dim of x: rows [first, end), both growing with o. Rows outside x hold `outside`.
struct Reads {
  int64_t out_size = 0;
  std::function<std::pair<int64_t, int64_t>(int64_t o)> rows;
};

// A tensor like x, sharded like it, in which each device's part begins with the rows that its part of the result (of
// size out_size along dim, sharded like x along dim) reads; what follows them must not be read. x itself when its parts
// are so already; else the dim's size is one length for all parts times their number. Throws PlacementError of `op`
// when implicit redistribution is off and rows have to travel. x must be sharded along dim.
Tensor with_halo(const char* op, const Tensor& x, int64_t dim, const Reads& reads, double outside, const Where& where);

// Offsets of the parts of `size` rows over the axes that shard `dim` in `layout`, in their order, and `size` at the
// end.
std::vector<int64_t> part_offsets(const Layout& layout, int64_t dim, int64_t size);

}  // namespace dtorch::image
