// Inference, rules, gradients' shapes and placements, and samples that the mathematical operators share.
#include <algorithm>

#include "ops/math/operators.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#include "runtime/client/record_usual.h"

namespace dtorch::math {
namespace {

DType combine_categories(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return *lower;
  if (!lower || is_floating(*higher)) return *higher;
  if (*higher == kBool || is_floating(*lower)) return promote(*higher, *lower);
  return *higher;
}

}  // namespace

DType result_dtype(std::span<const TensorMeta* const> inputs, int64_t number) {
  std::optional<DType> with_dims, without_dims, plain;
  for (const TensorMeta* input : inputs) {
    std::optional<DType>& kind = input->global_shape.ndim() > 0 ? with_dims : without_dims;
    kind = kind ? promote(*kind, input->dtype) : input->dtype;
  }
  if (number == kInteger) plain = kInt64;
  if (number == kFloating) plain = kFloat32;
  std::optional<DType> tensors;
  if (with_dims || without_dims) tensors = combine_categories(with_dims, without_dims);
  return combine_categories(tensors, plain);
}

DType floating_result_dtype(std::span<const TensorMeta* const> inputs, int64_t number) {
  const DType dtype = result_dtype(inputs, number);
  return is_floating(dtype) ? dtype : kFloat32;
}

Shape broadcast_inputs(const InferContext& context) {
  Shape shape = context.shape(0);
  for (size_t i = 1; i < context.inputs.size(); ++i) shape = broadcast_shapes(shape, context.shape(i), context.op);
  return shape;
}

std::vector<OutputMeta> infer_binary(const InferContext& context) {
  return {{broadcast_inputs(context), result_dtype(context.inputs, context.attributes<BinaryAttrs>().number)}};
}
std::vector<OutputMeta> infer_comparison(const InferContext& context) { return {{broadcast_inputs(context), kBool}}; }
std::vector<OutputMeta> infer_same(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }
std::vector<OutputMeta> infer_floating(const InferContext& context) {
  return {{context.shape(0), is_floating(context.dtype(0)) ? context.dtype(0) : kFloat32}};
}

void refuse_bool(const InferContext& context) {
  for (const TensorMeta* input : context.inputs) {
    if (input->dtype == kBool) {
      throw DTypeError("[" + std::string(context.op) +
                       "] isn't defined for bool; convert with to(kInt64) or use logical_not");
    }
  }
}

std::vector<int64_t> normalize_dims(const std::vector<int64_t>& dims, int64_t ndim, const char* op,
                                    const Where& where) {
  std::vector<int64_t> normalized;
  if (dims.empty()) {
    for (int64_t d = 0; d < ndim; ++d) normalized.push_back(d);
    return normalized;
  }
  for (int64_t d : dims) {
    if (ndim == 0 && (d == 0 || d == -1)) continue;
    normalized.push_back(normalize_dim(d, ndim, op, where));
  }
  std::sort(normalized.begin(), normalized.end());
  const auto twice = std::adjacent_find(normalized.begin(), normalized.end());
  if (twice != normalized.end()) {
    throw at_line(
        ShapeError("[" + std::string(op) + "] dim " + std::to_string(*twice) + " stands twice in the list of dims"),
        where);
  }
  return normalized;
}

Shape reduced_shape(const Shape& shape, const std::vector<int64_t>& dims, bool keepdim) {
  Shape reduced;
  for (int64_t d = 0; d < shape.ndim(); ++d) {
    if (!std::binary_search(dims.begin(), dims.end(), d)) {
      reduced.push_back(shape[d]);
    } else if (keepdim) {
      reduced.push_back(1);
    }
  }
  return reduced;
}

Rule elementwise(const InferContext& context, std::span<const OutputMeta> outputs, Linear linear) {
  std::vector<Shape> shapes;
  for (const TensorMeta* input : context.inputs) shapes.push_back(input->global_shape);
  return elementwise_rule(shapes, outputs[0].global_shape, linear, static_cast<int>(outputs.size()));
}

Tensor fit_gradient(const Tensor& gradient, const TensorMeta& input, Where where) {
  Tensor fitted = gradient;
  const Shape& shape = input.global_shape;
  if (fitted.shape() != shape) {
    std::vector<int64_t> dims;
    const int64_t added = fitted.ndim() - shape.ndim();
    for (int64_t d = 0; d < fitted.ndim(); ++d) {
      if (d < added || (shape[d - added] == 1 && fitted.shape()[d] != 1)) dims.push_back(d);
    }
    fitted = sum_pending(fitted, dims, /*keepdim=*/true, {}, where);
    for (int64_t d = 0; d < added; ++d) fitted = squeeze(fitted, 0, where);
  }
  return fitted.dtype() == input.dtype ? fitted : to(fitted, input.dtype, where);
}

Tensor place_gradient(const Tensor& gradient, const TensorMeta& input, Where where) {
  if (gradient.mesh() != input.layout.mesh()) return gradient;
  Placements placements = gradient.placements();
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& wanted = input.layout.placement(axis);
    if (wanted.is_shard()) {
      placements[axis] = wanted;
    } else if (wanted.is_partial() || !placements[axis].is_partial(kSum)) {
      placements[axis] = Replicate();
    }
  }
  const Layout layout(input.layout.mesh(), placements, gradient.ndim(), input.layout.shard_order());
  return layout == gradient.layout() ? gradient : gradient.redistribute(layout, where);
}

Tensor combine(const char* op, const Tensor& x, const Tensor& result, const Where& where) {
  Placements placements = result.placements(), fixed = x.placements();
  bool combines = false;
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_partial() || fixed[axis].is_partial()) continue;
    placements[axis] = fixed[axis] = Replicate();
    combines = true;
  }
  if (!combines) return result;
  require_implicit_redistribution(op, x, x.layout().with_placements(fixed, x.ndim()), where);
  return result.redistribute(result.layout().with_placements(placements, result.ndim()), where);
}

static const FixedAttributes without_number{BinaryAttrs{}};

Tensor record_binary(const OperatorDef& op, const Tensor& a, const Tensor& b, const Where& where) {
  return record_two(op, without_number, a, b, where);
}

Tensor record_with_number(const OperatorDef& op, const Tensor& a, const Number& b, bool reversed, const Where& where) {
  const Scalar scalar = b.scalar();
  return record(op, BinaryAttrs{kind_of(b), reversed}, {&a}, where, {.scalars = {&scalar, 1}});
}

SampleInput normal(Shape shape, DType dtype) { return {shape, dtype, SampleFill::kNormal}; }
SampleInput positive(Shape shape, DType dtype) { return {shape, dtype, SampleFill::kPositive}; }
SampleInput integers(Shape shape, DType dtype) { return {shape, dtype, SampleFill::kIota, 0, false}; }

std::vector<Sample> unary_samples(Tensor (*function)(const Tensor&, Where), SampleFill fill) {
  const auto call = [function](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{function(in[0], Where::current())};
  };
  return {{.name = "uneven", .inputs = {{{5, 3}, kFloat32, fill}}, .call = call},
          {.name = "size 1, float64", .inputs = {{{1, 4}, kFloat64, fill}}, .call = call},
          {.name = "empty", .inputs = {{{0, 2}, kFloat32, fill}}, .call = call}};
}

std::vector<Sample> binary_samples(Tensor (*function)(const Tensor&, const Tensor&, Where), SampleFill second) {
  const auto call = [function](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{function(in[0], in[1], Where::current())};
  };
  return {
      {.name = "uneven", .inputs = {normal({5, 3}), {{5, 3}, kFloat32, second}}, .call = call},
      {.name = "broadcast", .inputs = {normal({2, 5, 3}, kFloat64), {{5, 1}, kFloat64, second}}, .call = call},
      {.name = "empty", .inputs = {normal({0, 3}), {{3}, kFloat32, second}}, .call = call},
      {.name = "mixed dtypes", .inputs = {normal({3, 2}), {{2}, kFloat64, second}}, .call = call, .tolerance = 1e-5}};
}

}  // namespace dtorch::math
