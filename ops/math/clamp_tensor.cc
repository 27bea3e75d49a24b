// clamp(x, min, max) with tensors as bounds, one of which may be missing: minimum(maximum(x, min), max); elementwise
// with broadcasting. Layouts: same on every dim. It is non-decreasing in every operand, so that one alone may be
// Partial(max) or Partial(min); x and min may be Partial(max) together, max together with x and min Partial(min).
// Gradients: g where the operand was taken.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#include "ops/move/combine.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

struct BoundsAttrs {
  bool has_min = false, has_max = false;
  template <class V>
  void fields(V& v) {
    v("has_min", has_min);
    v("has_max", has_max);
  }
};

std::vector<OutputMeta> bounds_infer(const InferContext& context) {
  const DType dtype = result_dtype(context.inputs);
  if (dtype == kBool) throw DTypeError("[clamp] isn't defined for bool; convert with to(kInt64)");
  return {{broadcast_inputs(context), dtype}};
}

Rule bounds_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const auto& attributes = context.attributes<BoundsAttrs>();
  Rule rule = elementwise(context, outputs, Linear::kNo);
  const size_t max = attributes.has_min ? 2 : 1;
  for (ReduceOp kind : {kMax, kMin}) {
    for (size_t i = 0; i < context.inputs.size(); ++i) add_partial_row(&rule, {i}, kind, kind);
  }
  if (attributes.has_min) add_partial_row(&rule, {0, 1}, kMax, kMax);
  if (attributes.has_max) add_partial_row(&rule, {0, max}, kMin, kMin);
  if (attributes.has_min && attributes.has_max) add_partial_row(&rule, {1, 2}, kMin, kMin);
  return rule;
}

// As LibTorch: x's where min <= x <= max, min's where x < min < max, max's where max < x or max < min.
std::vector<Tensor> bounds_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<BoundsAttrs>();
  const Tensor& g = context.grad_output(0);
  // Comparisons need values, not pending parts.
  const auto value = [&](size_t i) { return reduce_pending("clamp", context.input(i), {}, Where::current()); };
  const Tensor x = value(0);
  const size_t last = attributes.has_min ? 2 : 1;
  const Tensor min = attributes.has_min ? value(1) : Tensor();
  const Tensor max = attributes.has_max ? value(last) : Tensor();
  const bool both = attributes.has_min && attributes.has_max;
  std::vector<Tensor> gradients(context.num_inputs());
  const auto set = [&](size_t i, const Tensor& taken) {
    gradients[i] = fit_gradient(where(taken, g, 0), context.input_meta(i));
  };
  if (context.needs_grad(0)) {
    const Tensor above = attributes.has_min ? ge(x, min) : Tensor();
    const Tensor below = attributes.has_max ? le(x, max) : Tensor();
    set(0, both ? logical_and(above, below) : attributes.has_min ? above : below);
  }
  if (attributes.has_min && context.needs_grad(1)) set(1, both ? logical_and(lt(x, min), lt(min, max)) : lt(x, min));
  if (attributes.has_max && context.needs_grad(last))
    set(last, both ? logical_or(gt(x, max), lt(max, min)) : gt(x, max));
  return gradients;
}

#if DTORCH_WITH_KERNELS
void bounds_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<BoundsAttrs>();
  std::optional<at::Tensor> min, max;
  if (attributes.has_min) min = input(context, 1);
  if (attributes.has_max) max = input(context, attributes.has_min ? 2 : 1);
  set_output(context, 0, DTORCH_ATEN(clamp)(input(context, 0), min, max));
}
#endif

std::vector<Sample> bounds_samples() {
  const auto both = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{clamp(in[0], in[1], in[2])}; };
  return {{.name = "uneven", .inputs = {normal({5, 3}), normal({5, 3}), normal({5, 3})}, .call = both},
          {.name = "broadcast, size 1",
           .inputs = {normal({1, 3}, kFloat64), normal({4, 1}, kFloat64), positive({}, kFloat64)},
           .call = both},
          {.name = "integers, only min",
           .inputs = {integers({7}), integers({1}, kInt32)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{clamp(in[0], in[1], Tensor())}; }},
          {.name = "only max, empty",
           .inputs = {normal({5, 1}), normal({3}), normal({0, 3})},
           .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{clamp(in[0], Tensor(), in[1]), clamp(in[2], Tensor(), in[1])};
           }}};
}

}  // namespace

constinit OperatorDef clamp_tensor_op = {
    .name = "clamp_tensor",
    .signature = "clamp(x, min: Tensor, max: Tensor) -> Tensor",
    .attributes = attribute_codec<BoundsAttrs>(),
    .infer = bounds_infer,
    .rule = bounds_rule,
    .kernel = DTORCH_KERNEL(bounds_kernel),
    .gradient = bounds_gradient,
    .samples = bounds_samples,
};

Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max, Where where) {
  const BoundsAttrs attributes{min.defined(), max.defined()};
  if (attributes.has_min && attributes.has_max) return record(clamp_tensor_op, attributes, {&x, &min, &max}, where);
  if (attributes.has_min) return record(clamp_tensor_op, attributes, {&x, &min}, where);
  if (attributes.has_max) return record(clamp_tensor_op, attributes, {&x, &max}, where);
  throw at_line(UserError("[clamp] neither min nor max is given"), where);
}

}  // namespace dtorch
