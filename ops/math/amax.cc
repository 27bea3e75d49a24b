// amax(x, dims), amin(x, dims); max(x), min(x) over all dims. The kernel reduces this device's part (of an empty one:
// the identity); sharding a reduced dim gives Partial(max or min), which is then reduced. NaN wins. Gradient: g, split
// evenly among equal elements.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/amax.h>
#include <ATen/ops/amax_cpu_dispatch.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/amin_cpu_dispatch.h>
#include <ATen/ops/full.h>
#endif

namespace dtorch {

extern OperatorDef amax_op, amin_op;

namespace {

using namespace math;

struct ExtremeAttrs {
  std::vector<int64_t> dims;  // ascending
  bool keepdim = false;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("keepdim", keepdim);
  }
};

std::vector<OutputMeta> amax_infer(const InferContext& context) {
  const auto& attributes = context.attributes<ExtremeAttrs>();
  for (int64_t d : attributes.dims) {
    if (context.shape(0)[d] == 0) {
      throw ShapeError("[" + std::string(context.op) + "] dim " + std::to_string(d) + " of " + context.shape(0).str() +
                       " has no elements");
    }
  }
  return {{reduced_shape(context.shape(0), attributes.dims, attributes.keepdim), context.dtype(0)}};
}

template <ReduceOp kReduce>
Rule amax_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<ExtremeAttrs>();
  Rule rule = reduce_rule(context.shape(0).ndim(), attributes.dims, attributes.keepdim, kReduce, Linear::kNo);
  rule.rows.push_back({{Partial(kReduce)}, {Partial(kReduce)}});
  return rule;
}

std::vector<Tensor> amax_gradient(const GradientContext& context) {
  const TensorMeta& meta = context.input_meta(0);
  const auto& attributes = context.attributes<ExtremeAttrs>();
  // Where the extremes of parts are pending, an element is compared as what it is: the extreme of its parts.
  Tensor g = context.grad_output(0), best = context.output(0).reduced();
  if (!attributes.keepdim) {
    for (int64_t d : attributes.dims) {
      g = unsqueeze(g, d);
      best = unsqueeze(best, d);
    }
  }
  // Reduced once: each reader would do it for itself, and each to another layout.
  const Tensor x = context.input(0).reduced();
  // Both NaN counts as equal.
  const Tensor equal = logical_or(eq(x, best), ne(x, x));
  const Tensor count = sum(to(equal, meta.dtype), attributes.dims, /*keepdim=*/true);
  const Tensor share = div(g, count);
  const Tensor expanded = expand(share, {meta.global_shape.begin(), meta.global_shape.end()});
  return {where(equal, place_gradient(expanded, meta), 0)};
}

#if DTORCH_WITH_KERNELS
template <bool kOfMax>
void amax_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ExtremeAttrs>();
  const at::Tensor& x = input(context, 0);
  if (attributes.dims.empty()) {
    context.output(0) = context.input(0);
  } else if (context.input_box(0).empty()) {
    set_output(context, 0,
               at::full(output_sizes(context, 0), worst_value(context.output_meta(0).dtype, kOfMax), x.options()));
  } else {
    set_output(context, 0,
               kOfMax ? DTORCH_ATEN(amax)(x, attributes.dims, attributes.keepdim)
                      : DTORCH_ATEN(amin)(x, attributes.dims, attributes.keepdim));
  }
}
#endif

template <Tensor (*kOverDims)(const Tensor&, const std::vector<int64_t>&, bool, Where),
          Tensor (*kOverAll)(const Tensor&, Where)>
std::vector<Sample> extreme_samples() {
  return {
      {.name = "all dims",
       .inputs = {{{5, 3}, kFloat32, SampleFill::kDistinct}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{kOverAll(in[0], Where::current())}; }},
      {.name = "two of three dims",
       .inputs = {{{5, 1, 4}, kFloat64, SampleFill::kDistinct}},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{kOverDims(in[0], {0, -1}, true, Where::current())};
           }},
      {.name = "integers, one row", .inputs = {integers({1, 3})}, .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{kOverDims(in[0], {0}, false, Where::current())};
       }}};
}

Tensor record_extreme(const OperatorDef& op, const Tensor& x, const std::vector<int64_t>& dims, bool keepdim,
                      const Where& where) {
  const ExtremeAttrs attributes{normalize_dims(dims, x.ndim(), op.name, where), keepdim};
  const Tensor whole = reduce_pending(op.name, x, &op == &amax_op ? kMax : kMin, where);
  return combine(op.name, whole, record(op, attributes, {&whole}, where), where);
}

}  // namespace

constinit OperatorDef amax_op = {
    .name = "amax",
    .signature = "amax(x, dims, keepdim) -> Tensor",
    .attributes = attribute_codec<ExtremeAttrs>(),
    .infer = amax_infer,
    .rule = amax_rule<kMax>,
    .kernel = DTORCH_KERNEL(amax_kernel<true>),
    .gradient = amax_gradient,
    .samples = extreme_samples<amax, max>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};
constinit OperatorDef amin_op = {
    .name = "amin",
    .signature = "amin(x, dims, keepdim) -> Tensor",
    .attributes = attribute_codec<ExtremeAttrs>(),
    .infer = amax_infer,
    .rule = amax_rule<kMin>,
    .kernel = DTORCH_KERNEL(amax_kernel<false>),
    .gradient = amax_gradient,
    .samples = extreme_samples<amin, min>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};

Tensor amax(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, Where where) {
  return record_extreme(amax_op, x, dims, keepdim, where);
}
Tensor amin(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, Where where) {
  return record_extreme(amin_op, x, dims, keepdim, where);
}
Tensor max(const Tensor& x, Where where) { return amax(x, {}, false, where); }
Tensor min(const Tensor& x, Where where) { return amin(x, {}, false, where); }
Tensor Tensor::max(Where where) const { return dtorch::max(*this, where); }

}  // namespace dtorch
