// Reductions and running values whose parts can't stay pending (a product, a norm, a running maximum): every device
// reduces its part to one entry along the dim, and only these entries travel. For the rooms of operators, not for
// users.
#pragma once
#include <vector>

#include "ops/math/extreme.h"
#include "ops/math/operators.h"
#include "runtime/client/gradient.h"

namespace dtorch::math {

// x's shape with one entry a part in each of `dims`; sharded by the same axes, every part holds exactly one.
Shape shape_by_part(const TensorMeta& x, const std::vector<int64_t>& dims);
// Which of the parts along `dim` the device holds, in their order.
int64_t part_number(const TensorMeta& x, int64_t dim, int64_t device);
// Replicate on the axes that shard one of `dims`.
Layout unsharded_over(const Tensor& x, const std::vector<int64_t>& dims);
int64_t count_over(const Shape& shape, const std::vector<int64_t>& dims);

// As normalize_dims; the error has the line of the call.
std::vector<int64_t> dims_of_call(const std::vector<int64_t>& dims, const Tensor& x, const char* op,
                                  const Where& where);
// The dim of an operator over one dim; a tensor without dims has dim 0.
int64_t dim_of_call(int64_t dim, const Tensor& x, const char* op, const Where& where);

// A reduced tensor with its reduced dims back as dims of size 1, and the reverse.
Tensor with_reduced_dims(Tensor reduced, const std::vector<int64_t>& dims, bool keepdim);
Tensor without_reduced_dims(Tensor kept, const std::vector<int64_t>& dims, bool keepdim);

struct ReduceAttrs {
  std::vector<int64_t> dims;  // ascending
  bool keepdim = false;
  bool by_part = false;    // one entry a part
  DType dtype = kFloat32;  // of the result
  double order = 2;        // of a norm
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("keepdim", keepdim);
    v("by_part", by_part);
    v("dtype", dtype);
    v("order", order);
  }
};
std::vector<OutputMeta> reduce_infer(const InferContext& context);
Rule reduce_by_part_rule(const InferContext& context, std::span<const OutputMeta> outputs);

using ReduceGradient = Tensor (*)(const Tensor& g, const Tensor& x, const Tensor& y, const ReduceAttrs& attributes);
template <ReduceGradient kGradient>
std::vector<Tensor> gradient_of_reduction(const GradientContext& context) {
  return {kGradient(context.grad_output(0), context.input(0), context.output(0), context.attributes<ReduceAttrs>())};
}
// Records `op`; where a reduced dim is sharded: by part, in the dtype `travels`, and then over the gathered parts with
// the order `order_of_parts`. What is pending in x is reduced first.
struct PartsOf {
  DType travels;
  double order_of_parts = 2;
};
Tensor reduce_by_part(const OperatorDef& op, ReduceGradient gradient, const Tensor& x, const ReduceAttrs& attributes,
                      const PartsOf& parts, const Where& where);

// Zeros of `size` along `dim`, to which g's entries are added at their indices. Along a sharded dim every device adds
// its own: Partial(sum). Linear in g.
Tensor scatter_along(const Tensor& g, const Tensor& indices, int64_t dim, int64_t size, Where where = Where::current());

}  // namespace dtorch::math
