// The operators of this room, and what its files share. Not for users.
#pragma once
#include <cmath>
#include <vector>

#include "ops/def/operator_def.h"
#include "ops/math/functions.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> math_operators();

namespace math {

// Whether an operand is a number of the call (a Scalar), and of which kind; part of the attributes, since it decides
// the dtype.
enum NumberKind : int64_t { kNoNumber = 0, kInteger = 1, kFloating = 2 };
inline NumberKind kind_of(const Number& number) { return number.is_floating ? kFloating : kInteger; }

// An integer that int64_t holds.
inline bool is_whole(double number) { return std::abs(number) < 0x1p63 && number == std::trunc(number); }

struct BinaryAttrs {
  int64_t number = kNoNumber;  // kind of the number operand
  bool reversed = false;       // the number is the first operand
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("reversed", reversed);
  }
};

// PyTorch's result type: tensors with dims before tensors without before numbers.
DType result_dtype(std::span<const TensorMeta* const> inputs, int64_t number = kNoNumber);
// The same with integers and bool turned into float32.
DType floating_result_dtype(std::span<const TensorMeta* const> inputs, int64_t number = kNoNumber);
// Broadcast shape of all inputs.
Shape broadcast_inputs(const InferContext& context);
// Inference of most elementwise operators (attributes: BinaryAttrs for those with two operands).
std::vector<OutputMeta> infer_binary(const InferContext& context);
std::vector<OutputMeta> infer_comparison(const InferContext& context);  // bool
std::vector<OutputMeta> infer_same(const InferContext& context);        // one input, same dtype
std::vector<OutputMeta> infer_floating(const InferContext& context);    // one input, integers give float32
void refuse_bool(const InferContext& context);                          // throws DTypeError when an input is bool

// dims of a reduction: normalised, ascending; none means all. Throws ShapeError when one is outside or stands twice.
std::vector<int64_t> normalize_dims(const std::vector<int64_t>& dims, int64_t ndim, const char* op, const Where& where);
Shape reduced_shape(const Shape& shape, const std::vector<int64_t>& dims, bool keepdim);

Rule elementwise(const InferContext& context, std::span<const OutputMeta> outputs, Linear linear);
template <Linear kLinear>
Rule elementwise_rule_of(const InferContext& context, std::span<const OutputMeta> outputs) {
  return elementwise(context, outputs, kLinear);
}

// Of one input. An increasing function commutes with the maximum and minimum of Partial parts, a decreasing one swaps
// them.
enum class Monotone : uint8_t { kNo, kUp, kDown };
template <Monotone kMonotone, Linear kLinear = Linear::kNo>
Rule monotone_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, kLinear);
  if (kMonotone == Monotone::kUp) {
    for (ReduceOp kind : {kMax, kMin}) rule.rows.push_back({{Partial(kind)}, {Partial(kind)}});
  } else if (kMonotone == Monotone::kDown) {
    rule.rows.push_back({{Partial(kMax)}, {Partial(kMin)}});
    rule.rows.push_back({{Partial(kMin)}, {Partial(kMax)}});
  }
  return rule;
}

// The gradient of an input that was broadcast (summed over the broadcast dims, pending over sharded ones) or promoted
// (cast back).
Tensor fit_gradient(const Tensor& gradient, const TensorMeta& input, Where where = Where::current());
// Redistributes a gradient to what training.md allows for a tensor of that layout: Shard stays Shard, Replicate may be
// pending, Partial becomes Replicate.
Tensor place_gradient(const Tensor& gradient, const TensorMeta& input, Where where = Where::current());
// Partial axes of `result` that aren't Partial in `x` become Replicate: what a combining operator does after its local
// kernel. Throws PlacementError when implicit redistribution is off.
Tensor combine(const char* op, const Tensor& x, const Tensor& result, const Where& where);

Tensor record_binary(const OperatorDef& op, const Tensor& a, const Tensor& b, const Where& where);
Tensor record_with_number(const OperatorDef& op, const Tensor& a, const Number& b, bool reversed, const Where& where);

// Sample inputs.
SampleInput normal(Shape shape, DType dtype = kFloat32);
SampleInput positive(Shape shape, DType dtype = kFloat32);
SampleInput integers(Shape shape, DType dtype = kInt64);
// Samples of an elementwise function of one floating input: uneven and empty, float32 and float64.
std::vector<Sample> unary_samples(Tensor (*function)(const Tensor&, Where), SampleFill fill = SampleFill::kNormal);
// Of two inputs: uneven with broadcasting, a size-1 dim, mixed dtypes.
std::vector<Sample> binary_samples(Tensor (*function)(const Tensor&, const Tensor&, Where),
                                   SampleFill second = SampleFill::kNormal);

}  // namespace math
}  // namespace dtorch
