// User-facing functions that rearrange, repeat, cut or join elements, beyond those of functions.h. Words, argument
// order and defaults are PyTorch's. All throw at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "ops/shape/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// --- order; a sharded dim is gathered for it, and the result is sharded as x was
Tensor flip(const Tensor& x, const std::vector<int64_t>& dims, Where where = Where::current());
Tensor fliplr(const Tensor& x, Where where = Where::current());  // dim 1
Tensor flipud(const Tensor& x, Where where = Where::current());  // dim 0
// k quarter turns from dims[0] to dims[1].
Tensor rot90(const Tensor& x, int64_t k = 1, const std::vector<int64_t>& dims = {0, 1}, Where where = Where::current());
// One shift a dim; one shift without dims is a shift of the flattened tensor.
Tensor roll(const Tensor& x, const std::vector<int64_t>& shifts, const std::vector<int64_t>& dims = {},
            Where where = Where::current());

// --- copies; a sharded dim is gathered for it, and the result is sharded as x was
// One number a dim of x, more in front for new dims.
Tensor repeat(const Tensor& x, const std::vector<int64_t>& repeats, Where where = Where::current());
// As repeat; missing numbers in front are 1.
Tensor tile(const Tensor& x, const std::vector<int64_t>& repeats, Where where = Where::current());
// Each element `repeats` times in place; without a dim x is flattened first.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {},
                         Where where = Where::current());
// pad: {left, right} of the last dim, then of the one before, ...; negative numbers cut. mode: "constant", "reflect",
// "replicate" or "circular"; value is for "constant". Any number of dims in every mode.
Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, const std::string& mode = "constant", Number value = 0,
           Where where = Where::current());
// Windows of `size` elements every `step`, as a new last dim. A view.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step, Where where = Where::current());

// --- triangles and diagonals of two dims
Tensor tril(const Tensor& x, int64_t diagonal = 0, Where where = Where::current());
Tensor triu(const Tensor& x, int64_t diagonal = 0, Where where = Where::current());
// The diagonal is a new last dim.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1,
                Where where = Where::current());
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1,
                  Where where = Where::current());
// Of a vector a matrix, of a matrix its diagonal.
Tensor diag(const Tensor& x, int64_t diagonal = 0, Where where = Where::current());
Tensor trace(const Tensor& x, Where where = Where::current());  // integers are summed in int64

// --- views
Tensor movedim(const Tensor& x, const std::vector<int64_t>& source, const std::vector<int64_t>& destination,
               Where where = Where::current());
Tensor movedim(const Tensor& x, int64_t source, int64_t destination, Where where = Where::current());
Tensor swapaxes(const Tensor& x, int64_t axis0, int64_t axis1, Where where = Where::current());
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1, Where where = Where::current());
Tensor broadcast_to(const Tensor& x, const std::vector<int64_t>& shape, Where where = Where::current());
// Of `other` only the shape is used.
Tensor expand_as(const Tensor& x, const Tensor& other, Where where = Where::current());
Tensor view_as(const Tensor& x, const Tensor& other, Where where = Where::current());
Tensor reshape_as(const Tensor& x, const Tensor& other, Where where = Where::current());
Tensor ravel(const Tensor& x, Where where = Where::current());
// One dim becomes several; one size may be -1.
Tensor unflatten(const Tensor& x, int64_t dim, const std::vector<int64_t>& sizes, Where where = Where::current());
Tensor atleast_1d(const Tensor& x, Where where = Where::current());
Tensor atleast_2d(const Tensor& x, Where where = Where::current());
Tensor atleast_3d(const Tensor& x, Where where = Where::current());
// Several dims at once; of unsqueeze they are dims of the result.
Tensor squeeze(const Tensor& x, const std::vector<int64_t>& dims, Where where = Where::current());
Tensor unsqueeze(const Tensor& x, const std::vector<int64_t>& dims, Where where = Where::current());

// --- several tensors out of one; refused on a sharded dim
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0, Where where = Where::current());
// `sections` parts whose sizes differ by at most 1, or parts between `indices` as slice counts them.
std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0, Where where = Where::current());
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim = 0,
                                 Where where = Where::current());
// Along dim 1 (of a vector 0), 0 and 2; `sections` must be equal.
std::vector<Tensor> hsplit(const Tensor& x, int64_t sections, Where where = Where::current());
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& indices, Where where = Where::current());
std::vector<Tensor> vsplit(const Tensor& x, int64_t sections, Where where = Where::current());
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& indices, Where where = Where::current());
std::vector<Tensor> dsplit(const Tensor& x, int64_t sections, Where where = Where::current());
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& indices, Where where = Where::current());

// --- one tensor out of several
Tensor hstack(const std::vector<Tensor>& tensors, Where where = Where::current());
Tensor vstack(const std::vector<Tensor>& tensors, Where where = Where::current());
Tensor dstack(const std::vector<Tensor>& tensors, Where where = Where::current());
Tensor column_stack(const std::vector<Tensor>& tensors, Where where = Where::current());
Tensor block_diag(const std::vector<Tensor>& tensors, Where where = Where::current());
// indexing: "ij" or "xy".
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, const std::string& indexing = "ij",
                             Where where = Where::current());
Tensor cartesian_prod(const std::vector<Tensor>& tensors, Where where = Where::current());

}  // namespace dtorch
