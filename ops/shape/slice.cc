// slice(x, dim, start, end, step), narrow, select. Views. Layouts: other dims keep their shards, Partial passes; along
// a sharded dim x is gathered first. Gradient: zeros with g at the slice (slice_gradient).
#include <algorithm>

#include "ops/math/operators.h"
#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/slice_backward_native.h>
#include <ATen/ops/slice_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct SliceAttrs {
  int64_t dim = 0, start = 0, end = 0, step = 1;  // 0 <= start <= end <= size
  int64_t size = 0;                               // of x along dim
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("start", start);
    v("end", end);
    v("step", step);
    v("size", size);
  }
};

std::vector<OutputMeta> slice_infer(const InferContext& context) {
  const auto& attributes = context.attributes<SliceAttrs>();
  Shape shape = context.shape(0);
  shape[attributes.dim] = (attributes.end - attributes.start + attributes.step - 1) / attributes.step;
  return {{shape, context.dtype(0)}};
}
std::vector<OutputMeta> slice_gradient_infer(const InferContext& context) {
  const auto& attributes = context.attributes<SliceAttrs>();
  Shape shape = context.shape(0);
  shape[attributes.dim] = attributes.size;
  return {{shape, context.dtype(0)}};
}

Rule slice_rule(const InferContext& context, std::span<const OutputMeta>) {
  return all_but_one_rule(context.shape(0).ndim(), context.attributes<SliceAttrs>().dim, 1, 1);
}
// Zeros are the identity of sum and avg only.
Rule slice_gradient_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = slice_rule(context, outputs);
  std::erase_if(rule.rows,
                [](const Row& row) { return row.inputs[0].is_partial(kMax) || row.inputs[0].is_partial(kMin); });
  return rule;
}

std::vector<Tensor> slice_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<SliceAttrs>();
  const Tensor g = gather_dim("slice", context.grad_output(0), attributes.dim, Where::current());
  return {math::place_gradient(record(slice_gradient_op, attributes, {&g}, Where::current()), context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void slice_kernel(KernelContext& context) {
  const auto& a = context.attributes<SliceAttrs>();
  set_output(context, 0, at::native::slice(input(context, 0), a.dim, a.start, a.end, a.step));
}
void slice_gradient_kernel(KernelContext& context) {
  const auto& a = context.attributes<SliceAttrs>();
  set_output(context, 0,
             at::native::slice_backward(input(context, 0), output_sizes(context, 0), a.dim, a.start, a.end, a.step));
}
#endif

std::vector<Sample> slice_samples() {
  return {{.name = "rows",
           .inputs = {{{5, 3}}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{slice(in[0], 0, 1, 4), slice(in[0], 1, -2, 99, 2)};
               }},
          {.name = "select, size 1",
           .inputs = {{{4, 1, 3}, kFloat64}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{select(in[0], 1, 0), select(in[0], 0, -1)};
               }},
          {.name = "empty result",
           .inputs = {{{5, 2}, kInt64, SampleFill::kIota, 0, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{narrow(in[0], 0, 2, 0)}; }}};
}

// Of a slice whose bounds are already legal.
Tensor record_slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step, const Where& where) {
  const int64_t size = x.shape()[dim];
  if (start == 0 && end == size && step == 1) return x;
  const Tensor gathered = gather_dim("slice", x, dim, where);
  return record(slice_op, SliceAttrs{dim, start, end, step, size}, {&gathered}, where);
}

}  // namespace

constinit OperatorDef slice_op = {
    .name = "slice",
    .signature = "slice(x, dim, start, end, step) -> Tensor",
    .attributes = attribute_codec<SliceAttrs>(),
    .infer = slice_infer,
    .rule = slice_rule,
    .kernel = DTORCH_KERNEL(slice_kernel),
    .gradient = slice_gradient,
    .samples = slice_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef slice_gradient_op = {
    .name = "slice_gradient",
    .signature = "slice_gradient(g, dim, start, end, step) -> Tensor",
    .attributes = attribute_codec<SliceAttrs>(),
    .infer = slice_gradient_infer,
    .rule = slice_gradient_rule,
    .kernel = DTORCH_KERNEL(slice_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "slice", where), size = x.shape()[d];
  if (step <= 0) throw at_line(UserError("[slice] step is " + std::to_string(step) + ", must be positive"), where);
  const auto clipped = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t first = clipped(start);
  return record_slice(x, d, first, std::max(first, clipped(end)), step, where);
}
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "narrow", where), size = x.shape()[d];
  const int64_t first = start < 0 ? start + size : start;
  if (first < 0 || length < 0 || first + length > size) {
    throw at_line(ShapeError("[narrow] start " + std::to_string(start) + " and length " + std::to_string(length) +
                             " leave dim " + std::to_string(d) + " of " + x.shape().str()),
                  where);
  }
  return record_slice(x, d, first, first + length, 1, where);
}
Tensor select(const Tensor& x, int64_t dim, int64_t index, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "select", where), size = x.shape()[d];
  if (index < -size || index >= size) {
    throw at_line(ShapeError("[select] index " + std::to_string(index) + " is outside dim " + std::to_string(d) +
                             " of " + x.shape().str()),
                  where);
  }
  const int64_t at = index < 0 ? index + size : index;
  const Tensor gathered = gather_dim("select", x, d, where);
  return squeeze(record_slice(gathered, d, at, at + 1, 1, where), d, where);
}

Tensor Tensor::slice(int64_t dim, int64_t start, int64_t end, Where where) const {
  return dtorch::slice(*this, dim, start, end, 1, where);
}
Tensor Tensor::select(int64_t dim, int64_t index, Where where) const {
  return dtorch::select(*this, dim, index, where);
}

}  // namespace dtorch
