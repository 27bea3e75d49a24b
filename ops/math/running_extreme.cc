// cummax(x, dim), cummin(x, dim) -> {values, indices}: running extremes; the index is global and of the last of equal
// ones, and a NaN stays, as LibTorch's. Other dims keep their shards. Along a sharded dim the results are sharded as x
// is: the extreme of each part and its index, one entry a part, are gathered (extreme_totals), and each device
// continues from the best of the parts before its own (extreme_shifted). Gradient of the values: g added up at the
// indices.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/parts.h"
#include "ops/math/reductions.h"
#include "ops/move/combine.h"
#include "ops/shape/operators.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummax_native.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/cummin_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/where_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef cummax_op, cummin_op, extreme_totals_op, extreme_shifted_op;

namespace {

using namespace math;

struct RunningAttrs {
  int64_t dim = 0;
  bool largest = true;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("largest", largest);
  }
};

std::vector<OutputMeta> running_infer(const InferContext& context) {
  return {{context.shape(0), context.dtype(0)}, {context.shape(0), kInt64}};
}
Rule two_outputs(Rule rule) {
  rule.output_letters.push_back(rule.output_letters[0]);
  for (Row& row : rule.rows) row.outputs.push_back(row.outputs[0]);
  return rule;
}
Rule running_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim(), blocked[] = {context.attributes<RunningAttrs>().dim};
  return two_outputs(pointwise_except_rule(ndim, ndim == 0 ? std::span<const int64_t>() : blocked, Linear::kNo));
}

std::vector<OutputMeta> totals_infer(const InferContext& context) {
  const Shape shape = shape_by_part(*context.inputs[0], {context.attributes<RunningAttrs>().dim});
  return {{shape, context.dtype(0)}, {shape, kInt64}};
}
Rule totals_rule(const InferContext& context, std::span<const OutputMeta>) {
  return two_outputs(pointwise_except_rule(context.shape(0).ndim(), {}, Linear::kNo));
}
Rule shifted_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const int64_t dim = context.attributes<RunningAttrs>().dim;
  Rule rule = totals_rule(context, outputs);
  rule.input_letters.resize(3, rule.input_letters[0]);
  for (size_t i : {size_t{1}, size_t{2}}) rule.input_letters[i][dim] = kNoLetter;
  for (Row& row : rule.rows) row.inputs.resize(3, row.inputs[0].is_shard(dim) ? Replicate() : row.inputs[0]);
  return rule;
}

#if DTORCH_WITH_KERNELS
std::pair<at::Tensor, at::Tensor> running(const at::Tensor& x, const RunningAttrs& attributes) {
  if (x.numel() == 0) return {at::empty_like(x), at::empty_like(x, x.options().dtype(at::kLong))};
  auto [values, indices] = attributes.largest ? DTORCH_BY_DEVICE(at::native::cummax, at::cummax)(x, attributes.dim)
                                              : DTORCH_BY_DEVICE(at::native::cummin, at::cummin)(x, attributes.dim);
  return {values, indices};
}

void running_kernel(KernelContext& context) {
  auto [values, indices] = running(input(context, 0), context.attributes<RunningAttrs>());
  set_output(context, 0, values);
  set_output(context, 1, indices);
}

// An empty part has the index -1.
void totals_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RunningAttrs>();
  const Box& box = context.input_box(0);
  const at::Tensor& x = input(context, 0);
  if (box.size[attributes.dim] == 0) {
    const DType dtype = context.output_meta(0).dtype;
    set_output(context, 0, at::full(output_sizes(context, 0), worst_value(dtype, attributes.largest), x.options()));
    set_output(context, 1, at::full(output_sizes(context, 1), -1, x.options().dtype(at::kLong)));
    return;
  }
  auto [values, indices] = running(x, attributes);
  set_output(context, 0, values.narrow(attributes.dim, -1, 1));
  set_output(context, 1, indices.narrow(attributes.dim, -1, 1).add(box.offset[attributes.dim]));
}

struct Best {
  at::Tensor values, indices;  // index -1: none
};
// `later` where it continues after `earlier`.
Best better_of(const Best& earlier, const Best& later, bool largest) {
  const at::Tensor beats = largest ? later.values.ge(earlier.values) : later.values.le(earlier.values);
  const at::Tensor is_nan = later.values.ne(later.values), was_nan = earlier.values.ne(earlier.values);
  const at::Tensor wins = earlier.indices.lt(0).logical_or(is_nan).logical_or(beats.logical_and(was_nan.logical_not()));
  const at::Tensor takes = wins.logical_and(later.indices.ge(0));
  return {DTORCH_ATEN(where)(takes, later.values, earlier.values),
          DTORCH_ATEN(where)(takes, later.indices, earlier.indices)};
}

void shifted_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RunningAttrs>();
  const int64_t dim = attributes.dim, own = part_number(context.input_meta(0), dim, context.device());
  auto [values, indices] = running(input(context, 0), attributes);
  Best result{values, indices.add(context.input_box(0).offset[dim])};
  if (own > 0) {
    const auto part = [&](int64_t p) {
      return Best{input(context, 1).narrow(dim, p, 1), input(context, 2).narrow(dim, p, 1)};
    };
    Best before = part(0);
    for (int64_t p = 1; p < own; ++p) before = better_of(before, part(p), attributes.largest);
    result = better_of(before, result, attributes.largest);
  }
  set_output(context, 0, result.values);
  set_output(context, 1, result.indices);
}
#endif

std::vector<Tensor> running_gradient(const GradientContext& context) {
  if (!context.grad_output(0).defined()) return {Tensor()};
  const int64_t dim = context.attributes<RunningAttrs>().dim;
  const Shape& shape = context.input_meta(0).global_shape;
  return {scatter_along(context.grad_output(0), context.output(1), dim, shape.ndim() == 0 ? 1 : shape[dim])};
}

template <std::pair<Tensor, Tensor> (*kFunction)(const Tensor&, int64_t, Where)>
std::vector<Sample> running_samples() {
  const auto along = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) {
      auto [values, indices] = kFunction(in[0], dim, Where::current());
      return std::vector<Tensor>{values, indices};
    };
  };
  return {{.name = "uneven", .inputs = {normal({7, 2}, kFloat64)}, .call = along(0)},
          {.name = "last dim", .inputs = {normal({3, 5})}, .call = along(-1)},
          {.name = "equal elements, size 1",
           .inputs = {{{7, 1}, kInt64, SampleFill::kIndices, 3, false}},
           .call = along(0)},
          {.name = "empty", .inputs = {normal({0, 3})}, .call = along(0)}};
}

std::pair<Tensor, Tensor> running_of(const OperatorDef& op, const Tensor& input, int64_t dim, bool largest,
                                     const Where& where) {
  const RunningAttrs attributes{dim_of_call(dim, input, op.name, where), largest};
  const Tensor x = reduce_pending(op.name, input, {}, where);
  if (!any_sharded(x, {attributes.dim})) {
    auto [values, indices] = record_many<2>(op, attributes, {&x}, where);
    return {values, indices};
  }
  require_implicit_redistribution(op.name, x, unsharded_layout(x, attributes.dim), where);
  Tensor values, indices;
  {
    NoGrad no_grad;
    auto [part_values, part_indices] = record_many<2>(extreme_totals_op, attributes, {&x}, where);
    const Tensor total_values = shaping::gather_dim(op.name, part_values, attributes.dim, where);
    const Tensor total_indices = shaping::gather_dim(op.name, part_indices, attributes.dim, where);
    auto results = record_many<2>(extreme_shifted_op, attributes, {&x, &total_values, &total_indices}, where);
    values = results[0];
    indices = results[1];
  }
  if (grad_enabled() && x.requires_grad()) {
    const auto gradient = [attributes, indices, size = x.shape()[attributes.dim]](const GradientContext& context) {
      return std::vector<Tensor>{scatter_along(context.grad_output(0), indices, attributes.dim, size)};
    };
    set_custom_gradient(op.name, {&x, 1}, {&values, 1}, gradient, where);
  }
  return {values, indices};
}

}  // namespace

constinit OperatorDef cummax_op = {
    .name = "cummax",
    .signature = "cummax(x, dim) -> (Tensor, Tensor)",
    .attributes = attribute_codec<RunningAttrs>(),
    .infer = running_infer,
    .rule = running_rule,
    .kernel = DTORCH_KERNEL(running_kernel),
    .gradient = running_gradient,
    .samples = running_samples<cummax>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
    .saved_outputs = 2,
};
constinit OperatorDef cummin_op = {
    .name = "cummin",
    .signature = "cummin(x, dim) -> (Tensor, Tensor)",
    .attributes = attribute_codec<RunningAttrs>(),
    .infer = running_infer,
    .rule = running_rule,
    .kernel = DTORCH_KERNEL(running_kernel),
    .gradient = running_gradient,
    .samples = running_samples<cummin>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
    .saved_outputs = 2,
};
constinit OperatorDef extreme_totals_op = {
    .name = "extreme_totals",
    .signature = "cummax/cummin(x, dim) -> extreme of every part (values, indices)",
    .attributes = attribute_codec<RunningAttrs>(),
    .infer = totals_infer,
    .rule = totals_rule,
    .kernel = DTORCH_KERNEL(totals_kernel),
    .saved_inputs = 0,
};
constinit OperatorDef extreme_shifted_op = {
    .name = "extreme_shifted",
    .signature = "cummax/cummin(x, values, indices, dim) -> (Tensor, Tensor)",
    .attributes = attribute_codec<RunningAttrs>(),
    .infer = running_infer,
    .rule = shifted_rule,
    .kernel = DTORCH_KERNEL(shifted_kernel),
    .saved_inputs = 0,
};

std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim, Where where) {
  return running_of(cummax_op, x, dim, true, where);
}
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim, Where where) {
  return running_of(cummin_op, x, dim, false, where);
}

}  // namespace dtorch
