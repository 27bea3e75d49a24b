// The operators of this room, and what its files share. Not for users.
#pragma once
#include <vector>

#include "ops/create/functions.h"
#include "ops/def/operator_def.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> create_operators();
extern OperatorDef full_op, arange_op, eye_op, rand_op, randn_op, randint_op, from_host_op;
extern OperatorDef linspace_op, logspace_op, normal_op, uniform_op, exponential_op, gumbel_op, randperm_op,
    bernoulli_p_op, bernoulli_op, normal_of_op, poisson_op, multinomial_op;

namespace create {

// Layouts of created tensors: shape and dtype are attributes, the layout is given by the caller.
struct CreateAttrs {
  Shape shape;
  DType dtype = kFloat32;
  template <class V>
  void fields(V& v) {
    v("shape", shape);
    v("dtype", dtype);
  }
};
// Throws ShapeError on a negative size or too many elements.
void check_shape(const char* op, const Shape& shape);
std::vector<OutputMeta> infer_created(const InferContext& context);

// True when this device's part of a created output holds the value; false: it holds zeros, because another position of
// a Partial(sum) axis holds it. Parts of avg, max and min all hold the value.
bool holds_value(const KernelContext& context);
// This device's part of the output, uninitialised, or zeros when !holds_value (then *done is set).
NativeTensor make_part(const KernelContext& context, bool* done);

// The layout of x_like: `other`'s, with Partial replaced by Replicate.
Layout layout_like(const Tensor& other);
Tensor record_created(const OperatorDef& op, const CreateAttrs& attributes, const Layout& layout,
                      std::span<const Scalar> scalars, bool requires_grad, const Where& where);

}  // namespace create
}  // namespace dtorch
