// User-facing functions that pick, place and order elements by index. Words, argument order and defaults are PyTorch's;
// indices are global positions, whatever device holds them. All throw ShapeError, DTypeError or PlacementError at the
// call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// --- by index: they take every layout
// -----------------------------------------------------------------------------------------------------
// Indices are int64 or int32. One outside of its dim is a RuntimeFault at the next read; negative ones count from the
// end in index, index_put, take and put, and are refused elsewhere. Where several values go to one place, the last in
// the indices' order stays (accumulating: all are added).

// out[i][j] = x[index[i][j]][j] for dim 0: as large as index, which may be smaller than x in the other dims.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Where where = Where::current());
// gather with broadcasting in all dims but `dim`; without a dim: of both flattened.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {},
                      Where where = Where::current());
// x with out[index[i][j]][j] = src[i][j] for dim 0; src may be larger than index. Where an index stands twice, all of
// its src get the gradient, as in PyTorch.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Where where = Where::current());
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value, Where where = Where::current());
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                   Where where = Where::current());
// reduce: "sum", "prod", "mean", "amax", "amin". Without include_self the places that are written forget x. prod has no
// gradient.
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce,
                      bool include_self = true, Where where = Where::current());

// Slices of x along `dim` at the positions of a 1-D index, and what is put there.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Where where = Where::current());
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Number alpha = 1,
                 Where where = Where::current());
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                  Where where = Where::current());
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value, Where where = Where::current());

// x[i0, i1, ...]: one entry a dim of x, nullopt for all of it (":"), trailing ones left out. Index tensors are
// broadcast against each other. A bool tensor covers as many dims as it has and stands for its nonzero(), which is
// read here.
Tensor index(const Tensor& x, const std::vector<std::optional<Tensor>>& indices, Where where = Where::current());
// x with x[i0, i1, ...] = values, which are broadcast; accumulate: += values.
Tensor index_put(const Tensor& x, const std::vector<std::optional<Tensor>>& indices, const Tensor& values,
                 bool accumulate = false, Where where = Where::current());
// By position in the flattened x.
Tensor take(const Tensor& x, const Tensor& index, Where where = Where::current());
Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate = false,
           Where where = Where::current());

// --- by value: the result's shape depends on data, which is read here; Replicate, but what is pending stays so
// -------------------------------------
Tensor nonzero(const Tensor& x, Where where = Where::current());   // [count, ndim], int64
Tensor argwhere(const Tensor& x, Where where = Where::current());  // the same
Tensor masked_select(const Tensor& x, const Tensor& mask, Where where = Where::current());

// x with the elements where mask is true replaced by the first elements of source, in order. mask is broadcast to x.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source, Where where = Where::current());

// --- assignment to slices: copies of x
// -----------------------------------------------------------------------------------------------
// x with slice(x, dim, start, end, step) = src.
Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim = 0, std::optional<int64_t> start = {},
                     std::optional<int64_t> end = {}, int64_t step = 1, Where where = Where::current());
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index, Where where = Where::current());
Tensor diagonal_scatter(const Tensor& x, const Tensor& src, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1,
                        Where where = Where::current());

// --- others
// ------------------------------------------------------------------------------------------------------------------------
// [..., num_classes], int64. num_classes -1: the largest id + 1, which is read here.
Tensor one_hot(const Tensor& ids, int64_t num_classes = -1, Where where = Where::current());
// Whether each element stands in `test`; invert: doesn't.
Tensor isin(const Tensor& elements, const Tensor& test, bool invert = false, Where where = Where::current());
// [2, count]: rows and columns of the elements on and below (tril), on and above (triu) the diagonal, row by row. int64
// unless told otherwise.
Tensor tril_indices(int64_t row, int64_t col, int64_t offset = 0, const TensorOptions& options = {},
                    Where where = Where::current());
Tensor triu_indices(int64_t row, int64_t col, int64_t offset = 0, const TensorOptions& options = {},
                    Where where = Where::current());

}  // namespace dtorch
