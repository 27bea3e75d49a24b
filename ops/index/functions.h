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

// --- ordering: over a sharded dim they combine by themselves; the result is Replicate there
// --------------------------------------------
// {values, indices}. Always stable, whatever `stable` says; NaN is the largest.
std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false,
                               Where where = Where::current());
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false, bool stable = false,
               Where where = Where::current());
Tensor msort(const Tensor& x, Where where = Where::current());  // values along dim 0
// {values, indices} of the k largest or smallest, in order, whatever `sorted` says; of equal ones the first come first.
std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true,
                               Where where = Where::current());
// {value, index} of the k-th smallest, counted from 1.
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false,
                                   Where where = Where::current());

// --- looking up in a sorted sequence, counting
// ----------------------------------------------------------------------------------------
// sorted_sequence [N], or [..., N] beside values [..., M]: how many of its elements are below a value (right: not above
// it). int64, or int32.
Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool out_int32 = false, bool right = false,
                    Where where = Where::current());
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool out_int32 = false, bool right = false,
                 Where where = Where::current());
// x [N] of integers that aren't negative -> [max(minlength, largest + 1)]: how often each stands in x, or the sum of
// its weights. Reads x's extremes, and so waits for them.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0, Where where = Where::current());
// How many elements lie in each of `bins` equal intervals from min to max; min == max: from x's least to its largest.
Tensor histc(const Tensor& x, int64_t bins = 100, double min = 0, double max = 0, Where where = Where::current());

}  // namespace dtorch
