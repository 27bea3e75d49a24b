// Where the operands of an indexing operator must be for its local kernel, and what its result then is. Indices name
// global positions, so each device answers for the positions that it holds. Pure, but for place_pick and place_put,
// which record redistributes. Not for users.
#pragma once
#include <span>
#include <vector>

#include "mesh/signature.h"
#include "runtime/client/tensor.h"

namespace dtorch::indexing {

// The elements that are picked from x, or put into it, are a tensor of their own ("moved": the result of gather, the
// values of index_put). For each of its dims: x's dim with the same positions and the indices' dim, or -1 for none.
struct Dims {
  int64_t x_ndim = 0;
  int64_t index_ndim = 0;  // all indices have one shape
  size_t num_indices = 0;
  std::vector<int64_t> x;
  std::vector<int64_t> index;
};

// Of x and indices with the same number of dims (gather, scatter).
Dims aligned_dims(const Shape& x, const Shape& index, int64_t dim);
// Of x[i0, i1, ...]: `indexed` are x's dims that have an index, ascending. The indices' dims stand where the indexed
// ones were when those are neighbours, else in front.
Dims indexed_dims(int64_t x_ndim, const std::vector<int64_t>& indexed, size_t num_indices, int64_t index_ndim);
// Of x with the slice along `dim` replaced.
Dims sliced_dims(int64_t x_ndim, int64_t dim);

// Inputs x, indices...; output moved. A dim of x that is picked from may be sharded: every device then gives what it
// holds and zeros elsewhere.
Rule pick_rule(const Dims& dims);

enum class Put : uint8_t {
  kAssign,   // pure selection: pending values of every kind pass
  kAdd,      // values that are put by several devices may be added up
  kLinear,   // linear in x and values together
  kNothing,  // pending values don't pass
};
// Inputs x, indices..., values; output like x. Every device applies what falls into its part.
Rule put_rule(const Dims& dims, Put put, std::span<const TensorMeta* const> inputs);

struct Placed {
  std::vector<Tensor> inputs;  // of the kernel
  Placements result;           // of the operator, once what became pending in it is reduced
};
// Whatever the layouts are. Throws PlacementError of `op` when set_implicit_redistribution(false) is in force and
// something must be converted.
Placed place_pick(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const Dims& dims,
                  const Where& where);
Placed place_put(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 const Dims& dims, Put put, const Where& where);
// The kernel's output with the placements that the operator gives.
Tensor finish(const Tensor& output, const Placements& result, const Where& where);

// Redistributes tensors[i] to targets[i]; several axes of one dim split in one order in all of them, the first tensor's
// before the others'.
void place(const char* op, std::span<Tensor> tensors, std::span<const Placements> targets, const Where& where);

}  // namespace dtorch::indexing
