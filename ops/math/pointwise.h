// What the files of elementwise families share beyond operators.h. Not for users.
#pragma once
#include <initializer_list>
#include <vector>

#include "ops/math/elementwise.h"
#include "ops/math/operators.h"

namespace dtorch::math {

// One input, floating; the same dtype. Throws DTypeError.
std::vector<OutputMeta> infer_needs_floating(const InferContext& context);
// Of BinaryAttrs, as infer_binary.
std::vector<OutputMeta> infer_binary_floating(const InferContext& context);        // integers give float32
std::vector<OutputMeta> infer_binary_needs_floating(const InferContext& context);  // throws DTypeError unless floating
std::vector<OutputMeta> infer_binary_no_bool(const InferContext& context);         // throws DTypeError when bool
// Throws DTypeError when two inputs differ in dtype.
void need_one_dtype(const InferContext& context);

// A row in which the inputs `partial` are Partial(kind), the others Replicate, and the output is Partial(result).
void add_partial_row(Rule* rule, std::initializer_list<size_t> partial, ReduceOp kind, ReduceOp result);

// Gradient of an activation as an operator of its own on (g, x), with the activation's attributes.
template <OperatorDef& kOp, class A = NoAttrs>
std::vector<Tensor> gradient_from_input(const GradientContext& context) {
  const Tensor x = context.input(0);
  return {record(kOp, context.attributes<A>(), {&context.grad_output(0), &x}, Where::current())};
}
inline std::vector<Tensor> zero_gradient(const GradientContext& context) {
  return {zeros_like(context.grad_output(0))};
}

// Samples of a function of one floating input: as unary_samples, and one of bfloat16.
std::vector<Sample> activation_samples(Tensor (*function)(const Tensor&, Where));

}  // namespace dtorch::math
