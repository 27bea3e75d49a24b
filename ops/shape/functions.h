// User-facing functions that change shapes. Words, argument order and defaults are PyTorch's; values are immutable, so
// whether memory is shared never shows. All throw ShapeError or PlacementError at the call.
#pragma once
#include <optional>
#include <vector>

#include "runtime/client/tensor.h"

namespace dtorch {

// One size may be -1. Refused when it would cut a shard.
Tensor reshape(const Tensor& x, const std::vector<int64_t>& shape, Where where = Where::current());
Tensor view(const Tensor& x, const std::vector<int64_t>& shape, Where where = Where::current());
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1, Where where = Where::current());
Tensor permute(const Tensor& x, const std::vector<int64_t>& dims, Where where = Where::current());
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1, Where where = Where::current());
Tensor t(const Tensor& x, Where where = Where::current());  // at most 2 dims
Tensor unsqueeze(const Tensor& x, int64_t dim, Where where = Where::current());
// Without a dim: all of size 1. A dim of another size stays.
Tensor squeeze(const Tensor& x, std::optional<int64_t> dim = {}, Where where = Where::current());
// Dims of size 1 grow, new dims are added in front, -1 keeps a size.
Tensor expand(const Tensor& x, const std::vector<int64_t>& shape, Where where = Where::current());
Tensor contiguous(const Tensor& x, Where where = Where::current());

// Along a sharded dim these combine: the result is Replicate on its axes.
// Positions start, start + step, ... below end; negative positions count from the end, outside ones are clipped. step >
// 0.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step = 1,
             Where where = Where::current());
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Where where = Where::current());
Tensor select(const Tensor& x, int64_t dim, int64_t index, Where where = Where::current());
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0, Where where = Where::current());
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0, Where where = Where::current());

// Refused on a sharded dim. chunk: at most `chunks` parts of ceil(size / chunks).
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0, Where where = Where::current());
std::vector<Tensor> split(const Tensor& x, int64_t split_size, int64_t dim = 0, Where where = Where::current());
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0,
                          Where where = Where::current());

}  // namespace dtorch
