// max(x, dim), min(x, dim) -> {values, indices} and argmax, argmin. Indices are global and of the first of equal
// elements, as LibTorch's on one device. Over a sharded dim: candidates.cc. Gradient of the values: g at the indices, 0
// elsewhere.
#include "ops/create/aten_call.h"
#include "ops/math/extreme.h"
#include "ops/math/kernels.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmax_cpu_dispatch.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/argmin_cpu_dispatch.h>
#include <ATen/ops/max.h>
#include <ATen/ops/max_cpu_dispatch.h>
#include <ATen/ops/min.h>
#include <ATen/ops/min_cpu_dispatch.h>
#include <ATen/ops/zeros.h>
#endif

namespace dtorch {

extern OperatorDef max_dim_op, argmax_op, scatter_one_op;

namespace {

using namespace math;

struct MaxAttrs {
  std::vector<int64_t> dims;  // one; argmax: or all
  bool keepdim = false;
  bool largest = true;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("keepdim", keepdim);
    v("largest", largest);
  }
};

Shape max_shape(const InferContext& context) {
  const auto& attributes = context.attributes<MaxAttrs>();
  for (int64_t d : attributes.dims) {
    if (context.shape(0)[d] == 0) {
      throw ShapeError("[" + std::string(context.op) + "] dim " + std::to_string(d) + " of " + context.shape(0).str() +
                       " has no elements");
    }
  }
  return reduced_shape(context.shape(0), attributes.dims, attributes.keepdim);
}
std::vector<OutputMeta> max_dim_infer(const InferContext& context) {
  const Shape shape = max_shape(context);
  return {{shape, context.dtype(0)}, {shape, kInt64}};
}
std::vector<OutputMeta> argmax_infer(const InferContext& context) {
  refuse_bool(context);
  return {{max_shape(context), kInt64}};
}

Rule argmax_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<MaxAttrs>();
  return reduce_rule(context.shape(0).ndim(), attributes.dims, attributes.keepdim, std::nullopt, Linear::kNo);
}
Rule max_dim_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = argmax_rule(context, outputs);
  rule.output_letters.push_back(rule.output_letters[0]);
  for (Row& row : rule.rows) row.outputs.push_back(row.outputs[0]);
  return rule;
}

// scatter_one(g, indices): zeros of `size` along `dim`, where g (size 1) is put at the index.
struct ScatterAttrs {
  int64_t dim = 0;
  int64_t size = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("size", size);
  }
};
std::vector<OutputMeta> scatter_infer(const InferContext& context) {
  Shape shape = context.shape(0);
  shape[context.attributes<ScatterAttrs>().dim] = context.attributes<ScatterAttrs>().size;
  return {{shape, context.dtype(0)}};
}
Rule scatter_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t blocked[] = {context.attributes<ScatterAttrs>().dim};
  Rule rule = pointwise_except_rule(context.shape(0).ndim(), blocked, Linear::kNo);
  rule.input_letters[0][blocked[0]] = kNoLetter;
  rule.output_letters[0][blocked[0]] = kNoLetter;
  rule.input_letters.push_back(rule.input_letters[0]);
  for (Row& row : rule.rows) row.inputs.push_back(row.inputs[0]);
  for (ReduceOp kind : {kSum, kAvg}) rule.rows.push_back({{Partial(kind), Replicate()}, {Partial(kind)}});
  return rule;
}

Tensor gradient_of_values(const Tensor& g, const Tensor& indices, const MaxAttrs& attributes, const TensorMeta& input) {
  const int64_t dim = attributes.dims[0];
  const Tensor g1 = attributes.keepdim ? g : unsqueeze(g, dim);
  const Tensor indices1 = attributes.keepdim ? indices : unsqueeze(indices, dim);
  const ScatterAttrs scatter{dim, input.global_shape[dim]};
  return place_gradient(record(scatter_one_op, scatter, {&g1, &indices1}, Where::current()), input);
}
std::vector<Tensor> max_dim_gradient(const GradientContext& context) {
  if (!context.grad_output(0).defined()) return {Tensor()};
  return {gradient_of_values(context.grad_output(0), context.output(1), context.attributes<MaxAttrs>(),
                             context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void max_dim_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MaxAttrs>();
  const at::Tensor& x = input(context, 0);
  const int64_t dim = attributes.dims[0];
  auto [values, indices] =
      attributes.largest ? DTORCH_ATEN(max)(x, dim, attributes.keepdim) : DTORCH_ATEN(min)(x, dim, attributes.keepdim);
  set_output(context, 0, values);
  set_output(context, 1, indices);
}
void argmax_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MaxAttrs>();
  const at::Tensor& x = input(context, 0);
  std::optional<int64_t> dim;
  if (attributes.dims.size() == 1) dim = attributes.dims[0];
  const at::Tensor index = attributes.largest ? DTORCH_ATEN(argmax)(x, dim, attributes.keepdim)
                                              : DTORCH_ATEN(argmin)(x, dim, attributes.keepdim);
  set_output(context, 0, index.reshape(output_sizes(context, 0)));
}
void scatter_kernel(KernelContext& context) {
  at::Tensor out = at::zeros(output_sizes(context, 0), input(context, 0).options());
  out.scatter_(context.attributes<ScatterAttrs>().dim, input(context, 1), input(context, 0));
  set_output(context, 0, out);
}
#endif

template <bool kLargest>
std::vector<Sample> max_dim_samples() {
  const auto call = [](int64_t dim, bool keepdim) {
    return [dim, keepdim](const std::vector<Tensor>& in) {
      auto [values, indices] = kLargest ? max(in[0], dim, keepdim) : min(in[0], dim, keepdim);
      return std::vector<Tensor>{values, indices};
    };
  };
  return {
      {.name = "last dim", .inputs = {{{5, 3}, kFloat32, SampleFill::kDistinct}}, .call = call(-1, false)},
      {.name = "equal elements", .inputs = {{{7, 3}, kInt64, SampleFill::kIndices, 2, false}}, .call = call(0, false)},
      {.name = "size 1", .inputs = {{{4, 1, 2}, kFloat64, SampleFill::kDistinct}}, .call = call(1, true)}};
}
std::vector<Sample> max_and_min_samples() {
  std::vector<Sample> samples = max_dim_samples<true>();
  for (Sample& sample : max_dim_samples<false>()) {
    sample.name = "min: " + sample.name;
    samples.push_back(sample);
  }
  return samples;
}
std::vector<Sample> argmax_samples() {
  return {{.name = "all dims, equal elements",
           .inputs = {{{5, 3}, kInt64, SampleFill::kIndices, 3, false}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{argmax(in[0]), argmin(in[0])};
               }},
          {.name = "one dim",
           .inputs = {{{1, 5}, kFloat32, SampleFill::kDistinct, 0, false}},
           .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{argmax(in[0], 1, true), argmin(in[0], 0)};
           }}};
}

std::pair<Tensor, Tensor> max_of(const Tensor& input, int64_t dim, bool keepdim, bool largest, const Where& where) {
  const char* name = largest ? "max" : "min";
  const MaxAttrs attributes{{normalize_dim(dim, std::max<int64_t>(1, input.ndim()), name, where)}, keepdim, largest};
  const Tensor x = reduce_pending(name, input, {}, where);
  if (x.ndim() == 0)
    throw at_line(ShapeError(std::string("[") + name + "] a tensor without dims has no dim " + std::to_string(dim)),
                  where);
  if (!any_sharded(x, attributes.dims)) {
    auto [values, indices] = record_many<2>(max_dim_op, attributes, {&x}, where);
    return {values, indices};
  }
  if (x.shape()[attributes.dims[0]] == 0)
    throw at_line(ShapeError(std::string("[") + name + "] the dim has no elements: " + x.shape().str()), where);
  if (x.dtype() == kBool) {
    auto [values, indices] = max_of(to(x, kUInt8, where), dim, keepdim, largest, where);
    return {to(values, kBool, where), indices};
  }
  ValueAndIndex best = combined_extreme(name, x, attributes.dims, keepdim, largest, where);
  if (grad_enabled() && x.requires_grad()) {
    const auto gradient = [attributes, indices = best.indices, meta = &x.meta()](const GradientContext& context) {
      return std::vector<Tensor>{gradient_of_values(context.grad_output(0), indices, attributes, *meta)};
    };
    set_custom_gradient(name, {&x, 1}, {&best.values, 1}, gradient, where);
  }
  return {best.values, best.indices};
}

Tensor arg_of(const Tensor& input, std::optional<int64_t> dim, bool keepdim, bool largest, const Where& where) {
  const char* name = largest ? "argmax" : "argmin";
  const Tensor x = reduce_pending(name, input, {}, where);
  if (x.numel() == 0)
    throw at_line(ShapeError(std::string("[") + name + "] " + x.shape().str() + " has no elements"), where);
  std::vector<int64_t> dims;
  if (dim) dims = {*dim};
  const MaxAttrs attributes{normalize_dims(dims, x.ndim(), name, where), keepdim, largest};
  if (any_sharded(x, attributes.dims))
    return combined_extreme(name, x, attributes.dims, keepdim, largest, where).indices;
  return record(argmax_op, attributes, {&x}, where);
}

}  // namespace

constinit OperatorDef max_dim_op = {
    .name = "max",
    .signature = "max(x, dim, keepdim) -> (Tensor, Tensor)",
    .attributes = attribute_codec<MaxAttrs>(),
    .infer = max_dim_infer,
    .rule = max_dim_rule,
    .kernel = DTORCH_KERNEL(max_dim_kernel),
    .gradient = max_dim_gradient,
    .samples = max_and_min_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
    .saved_outputs = 2,
};
constinit OperatorDef argmax_op = {
    .name = "argmax",
    .signature = "argmax(x, dim, keepdim) -> Tensor",
    .attributes = attribute_codec<MaxAttrs>(),
    .infer = argmax_infer,
    .rule = argmax_rule,
    .kernel = DTORCH_KERNEL(argmax_kernel),
    .samples = argmax_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
};
constinit OperatorDef scatter_one_op = {
    .name = "scatter_one",
    .signature = "max/min(g, indices, dim, size) -> gradient",
    .attributes = attribute_codec<ScatterAttrs>(),
    .infer = scatter_infer,
    .rule = scatter_rule,
    .kernel = DTORCH_KERNEL(scatter_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim, Where where) {
  return max_of(x, dim, keepdim, true, where);
}
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim, Where where) {
  return max_of(x, dim, keepdim, false, where);
}
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Where where) {
  return arg_of(x, dim, keepdim, true, where);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Where where) {
  return arg_of(x, dim, keepdim, false, where);
}
std::pair<Tensor, Tensor> Tensor::max(int64_t dim, bool keepdim, Where where) const {
  return dtorch::max(*this, dim, keepdim, where);
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim, Where where) const {
  return dtorch::argmax(*this, dim, keepdim, where);
}

}  // namespace dtorch
