// unfold(x, dim, size, step): windows of `size` elements that start every `step` elements of the dim; the dim counts
// the windows, a new last dim their elements. A view. Layouts: other dims keep their shards, Partial passes; along a
// sharded dim x is gathered, and the windows are sharded as x was. Gradient: g added up where windows overlap
// (unfold_dim_gradient).
#include "ops/math/operators.h"
#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/unfold_backward.h>
#include <ATen/ops/unfold_backward_cpu_dispatch.h>
#include <ATen/ops/unfold_native.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {

extern OperatorDef unfold_dim_gradient_op;

namespace {

using namespace shaping;

struct UnfoldAttrs {
  int64_t dim = 0, size = 1, step = 1;
  int64_t length = 0;  // of x along dim
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("size", size);
    v("step", step);
    v("length", length);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  Shape shape = context.shape(0);
  shape[a.dim] = (a.length - a.size) / a.step + 1;
  shape.push_back(a.size);
  return {{shape, context.dtype(0)}};
}
std::vector<OutputMeta> gradient_infer(const InferContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  Shape shape = context.shape(0);
  shape.erase(shape.end() - 1);
  shape[a.dim] = a.length;
  return {{shape, context.dtype(0)}};
}

std::vector<int64_t> kept_dims(int64_t ndim, int64_t dim) {
  std::vector<int64_t> from;
  for (int64_t d = 0; d < ndim; ++d) from.push_back(d == dim ? -1 : d);
  return from;
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  std::vector<int64_t> from = kept_dims(ndim, context.attributes<UnfoldAttrs>().dim);
  from.push_back(-1);
  return dim_map_rule(ndim, from);
}
Rule gradient_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  return without_extremes(dim_map_rule(ndim, kept_dims(ndim - 1, context.attributes<UnfoldAttrs>().dim)));
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  const Where where = Where::current();
  const int64_t blocked[] = {a.dim, context.input_meta(0).global_shape.ndim()};
  const Tensor g = gather_dims("unfold", context.grad_output(0), blocked, where);
  return {math::place_gradient(record(unfold_dim_gradient_op, a, {&g}, where), context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  set_output(context, 0, at::native::unfold(input(context, 0), a.dim, a.size, a.step));
}
void gradient_kernel(KernelContext& context) {
  const auto& a = context.attributes<UnfoldAttrs>();
  set_output(context, 0,
             DTORCH_ATEN(unfold_backward)(input(context, 0), output_sizes(context, 0), a.dim, a.size, a.step));
}
#endif

std::vector<Sample> samples() {
  return {{.name = "overlap, uneven", .inputs = {{{2, 7}}}, .call = single([](const auto& in) {
                                                              return unfold(in[0], 1, 3, 2);
                                                            })},
          {.name = "gaps, size 1", .inputs = {{{5, 1}, kFloat64}}, .call = single([](const auto& in) {
                                                                     return unfold(in[0], 0, 1, 3);
                                                                   })},
          {.name = "empty windows, integers",
           .inputs = {{{5, 2}, kInt64, SampleFill::kIota, 0, false}},
           .call = single([](const auto& in) { return unfold(in[0], -1, 0, 1); })}};
}

}  // namespace

constinit OperatorDef unfold_dim_op = {
    .name = "unfold_dim",
    .signature = "unfold(x, dim, size, step) -> Tensor",
    .attributes = attribute_codec<UnfoldAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef unfold_dim_gradient_op = {
    .name = "unfold_dim_gradient",
    .signature = "unfold_dim_gradient(g, dim, size, step) -> Tensor",
    .attributes = attribute_codec<UnfoldAttrs>(),
    .infer = gradient_infer,
    .rule = gradient_rule,
    .kernel = DTORCH_KERNEL(gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "unfold", where), length = x.shape()[d];
  if (size < 0 || size > length || step <= 0) {
    throw at_line(ShapeError("[unfold] windows of " + std::to_string(size) + " every " + std::to_string(step) +
                             " elements of dim " + std::to_string(d) + " of " + x.shape().str() +
                             "; size must be 0 to " + std::to_string(length) + " and step positive"),
                  where);
  }
  if (x.ndim() == kMaxDims) {
    throw at_line(ShapeError("[unfold] x has " + std::to_string(kMaxDims) + " dims, there is no room for one more"),
                  where);
  }
  const Tensor gathered = gather_dim("unfold", x, d, where);
  return shard_as(x, record(unfold_dim_op, UnfoldAttrs{d, size, step, length}, {&gathered}, where), where);
}

}  // namespace dtorch
