// The operators of this room, and what its files share. Not for users.
#pragma once
#include <vector>

#include "ops/def/operator_def.h"
#include "ops/index/functions.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> index_operators();
extern OperatorDef gather_op, take_along_dim_op, scatter_op, scatter_add_op, scatter_reduce_op;
extern OperatorDef index_op, index_select_op, take_op;
extern OperatorDef index_put_op, index_add_op, index_copy_op, index_fill_op, put_op;
extern OperatorDef nonzero_op, argwhere_op, masked_select_op, masked_scatter_op, masked_scatter_grad_op;
extern OperatorDef slice_scatter_op, select_scatter_op, diagonal_scatter_op;
extern OperatorDef one_hot_op, isin_op, triangle_indices_op, tril_indices_op, triu_indices_op;

namespace indexing {

// Throws DTypeError unless it is int64 or int32.
void need_index(const char* op, const Tensor& index, const Where& where);
// Throws DTypeError unless both have one dtype.
void need_same_dtype(const char* op, const Tensor& x, const Tensor& values, const Where& where);

// x broadcast to `shape`; dims of size 1 that grow and are sharded are gathered first.
Tensor broadcast_to(const char* op, const Tensor& x, const Shape& shape, const Where& where);
// Every axis that shards `x` becomes Replicate, and, unless `pending`, every Partial one.
Tensor replicated(const char* op, const Tensor& x, bool pending, const Where& where);
// In the Graph of `like` and with its dtype.
Tensor zeros_with(const Tensor& like, const Shape& shape, const Layout& layout, const Where& where);
// A number with x's dtype, in its Graph and Replicate on its mesh.
Tensor number_like(const Tensor& x, Number value, const Where& where);

// What is added up at x's positions; what devices add for themselves stays pending. x has no gradient.
Tensor scatter_add_pending(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const Where& where);

struct IndexAttrs {
  std::vector<int64_t> dims;  // of x, ascending, one an index
  bool flat = false;          // one index of positions in the flattened x; dims are all
  bool wraps = true;          // negative positions count from the end
  bool accumulate = false;    // of index_put
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("flat", flat);
    v("wraps", wraps);
    v("accumulate", accumulate);
  }
};
// A user-facing function's call by index tensors of one shape.
Tensor pick(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const IndexAttrs& attributes,
            const Where& where);
// values: of the picked shape. keep_pending: as scatter_add_pending.
Tensor put_values(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                  const IndexAttrs& attributes, bool keep_pending, const Where& where);

// Index tensors, int, of one shape; bool masks are read. dims: x's.
struct IndexList {
  std::vector<Tensor> indices;
  std::vector<int64_t> dims;
  Shape picked;  // shape of x[...]
};
IndexList index_list(const char* op, const Tensor& x, const std::vector<std::optional<Tensor>>& indices,
                     const Where& where);
// Coordinates of the true elements, one Replicate tensor [count] a dim. Reads mask.
std::vector<Tensor> true_positions(const Tensor& mask, const Where& where);

// A sample's input: integers in [0, bound).
SampleInput indices_below(int64_t bound, Shape shape, DType dtype = kInt64);

}  // namespace indexing
}  // namespace dtorch
