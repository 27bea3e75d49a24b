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
