// bincount(x [N], weights [N], minlength): how often each of 0, 1, ... stands in x, or the sum of its weights.
// histc(x, bins, min, max): how many elements lie in each of `bins` equal intervals of [min, max]. Every device counts
// its part, so that any sharding gives Partial(sum), which is then reduced; weights may be pending (linear). Where the
// sizes or bounds follow from x they are read or reduced first. No gradients, as in PyTorch.
#include <algorithm>
#include <tuple>

#include "ops/index/operators.h"
#include "ops/math/operators.h"
#include "ops/math/parts.h"
#include "ops/math/products.h"
#include "ops/math/reductions.h"
#include "ops/move/combine.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/bincount.h>
#include <ATen/ops/bincount_cpu_dispatch.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/histc_cpu_dispatch.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {

extern OperatorDef bincount_op, histc_op;

namespace {

struct CountAttrs {
  int64_t bins = 0;
  template <class V>
  void fields(V& v) {
    v("bins", bins);
  }
};

std::vector<OutputMeta> bincount_infer(const InferContext& context) {
  const Shape shape{context.attributes<CountAttrs>().bins};
  if (context.inputs.size() == 1) return {{shape, kInt64}};
  if (context.shape(0) != context.shape(1)) {
    throw ShapeError("[bincount] the weights are " + context.shape(1).str() + ", the integers " +
                     context.shape(0).str() + "; both must have one shape");
  }
  return {{shape, context.dtype(1) == kFloat32 ? kFloat32 : kFloat64}};
}
Rule bincount_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters counted{1}, bins{2};
  Rule rule = math::letters_rule(std::vector<Letters>(context.inputs.size(), counted), bins);
  if (context.inputs.size() > 1 && is_floating(context.dtype(1))) {
    rule.rows.push_back({{Replicate(), Partial()}, {Partial()}});
  }
  return rule;
}

// histc(x, low, high): bounds without dims.
std::vector<OutputMeta> histc_infer(const InferContext& context) {
  return {{Shape{context.attributes<CountAttrs>().bins}, context.dtype(0)}};
}
Rule histc_rule(const InferContext& context, std::span<const OutputMeta>) {
  Letters counted;
  for (int64_t d = 0; d < context.shape(0).ndim(); ++d) counted.push_back(static_cast<int16_t>(d + 1));
  return math::letters_rule({counted, Letters{}, Letters{}}, Letters{static_cast<int16_t>(counted.size() + 1)});
}

#if DTORCH_WITH_KERNELS
void bincount_kernel(KernelContext& context) {
  const at::Tensor& x = input(context, 0);
  const at::ScalarType type = scalar_type(context.output_meta(0).dtype);
  if (x.numel() == 0) {
    set_output(context, 0, at::zeros(output_sizes(context, 0), x.options().dtype(type)));
    return;
  }
  std::optional<at::Tensor> weights;
  if (context.num_inputs() > 1) weights = input(context, 1);
  if (!x.is_cpu()) {
    // LibTorch's would look at the largest element.
    at::Tensor sums = at::zeros({context.attributes<CountAttrs>().bins}, x.options().dtype(type));
    const at::Tensor of_elements = weights ? weights->to(type) : at::ones_like(x, x.options().dtype(type));
    set_output(context, 0, sums.scatter_add_(0, x.to(at::kLong), of_elements));
    return;
  }
  const at::Tensor counts = DTORCH_ATEN(bincount)(x, weights, context.attributes<CountAttrs>().bins);
  set_output(context, 0, counts.to(type));
}

void histc_kernel(KernelContext& context) {
  const at::Tensor& x = input(context, 0);
  const int64_t bins = context.attributes<CountAttrs>().bins;
  const double low = input(context, 1).item<double>(), high = input(context, 2).item<double>();
  if (x.numel() == 0) {
    set_output(context, 0, at::zeros({bins}, x.options()));
    return;
  }
  // Equal bounds would be replaced by those of this part; LibTorch widens equal bounds of data by 1.
  const bool equal = low == high;
  set_output(context, 0, DTORCH_ATEN(histc)(x, bins, equal ? low - 1 : low, equal ? high + 1 : high));
}
#endif

std::vector<Sample> bincount_samples() {
  const SampleInput counted{{7}, kInt64, SampleFill::kIndices, 5, false};
  return {{.name = "uneven",
           .inputs = {counted},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{bincount(in[0]), bincount(in[0], {}, 9)};
               }},
          {.name = "weights",
           .inputs = {counted, {{7}, kFloat64, SampleFill::kNormal, 0, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{bincount(in[0], in[1])}; }},
          {.name = "empty",
           .inputs = {{{0}, kInt32, SampleFill::kIndices, 5, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{bincount(in[0], {}, 3)}; }}};
}
std::vector<Sample> histc_samples() {
  return {{.name = "bounds of the data",
           .inputs = {{{5, 3}, kFloat64, SampleFill::kNormal, 0, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{histc(in[0], 4)}; }},
          {.name = "given bounds, size 1",
           .inputs = {{{7, 1}, kFloat32, SampleFill::kNormal, 0, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{histc(in[0], 3, -1, 0.5)}; }}};
}

// Weights placed as the sharded integers that they belong to; pending ones stay so where the integers are whole.
Tensor beside(const Tensor& x, const Tensor& weights, const Where& where) {
  if (x.layout().is_replicated() || weights.shape() != x.shape() || weights.mesh() != x.mesh()) return weights;
  Placements placements = x.placements();
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& own = weights.placements()[axis];
    if (!placements[axis].is_shard() && own.is_partial()) placements[axis] = own;
  }
  const Layout layout = x.layout().with_placements(placements, 1);
  if (layout == weights.layout()) return weights;
  require_implicit_redistribution("bincount", weights, layout, where);
  return weights.redistribute(layout, where);
}

}  // namespace

constinit OperatorDef bincount_op = {
    .name = "bincount",
    .signature = "bincount(x, weights, minlength) -> Tensor",
    .attributes = attribute_codec<CountAttrs>(),
    .infer = bincount_infer,
    .rule = bincount_rule,
    .kernel = DTORCH_KERNEL(bincount_kernel),
    .samples = bincount_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "weights",
    .saved_inputs = 0,
};
constinit OperatorDef histc_op = {
    .name = "histc",
    .signature = "histc(x, bins, min, max) -> Tensor",
    .attributes = attribute_codec<CountAttrs>(),
    .infer = histc_infer,
    .rule = histc_rule,
    .kernel = DTORCH_KERNEL(histc_kernel),
    .samples = histc_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
};

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength, Where where) {
  if (x.ndim() != 1 || !is_integral(x.dtype())) {
    throw at_line(UserError(std::string("[bincount] got ") + name_of(x.dtype()) + " " + x.shape().str() +
                            ", needs integers of one dim"),
                  where);
  }
  if (minlength < 0) {
    throw at_line(UserError("[bincount] minlength is " + std::to_string(minlength) + ", must not be negative"), where);
  }
  SourceScope scope(where);
  const Tensor whole = reduce_pending("bincount", x, {}, where);
  require_implicit_redistribution("bincount", whole, unsharded_layout(whole), where);
  int64_t bins = minlength;
  if (whole.numel() > 0) {
    auto [least, largest] = aminmax(to(whole, kInt64, where), {}, false, where);
    if (const int64_t value = least.item<int64_t>(where); value < 0) {
      throw at_line(UserError("[bincount] an element is " + std::to_string(value) + ", must not be negative"), where);
    }
    bins = std::max(bins, largest.item<int64_t>(where) + 1);
  }
  NoGrad no_grad;
  const CountAttrs attributes{bins};
  if (!weights.defined()) {
    return math::combine("bincount", whole, record(bincount_op, attributes, {&whole}, where), where);
  }
  const std::optional<ReduceOp> kept = is_floating(weights.dtype()) ? std::optional(kSum) : std::nullopt;
  const Tensor weighed = beside(whole, reduce_pending("bincount", weights, kept, where), where);
  return math::combine("bincount", weighed, record(bincount_op, attributes, {&whole, &weighed}, where), where);
}

Tensor histc(const Tensor& x, int64_t bins, double min, double max, Where where) {
  if (!is_floating(x.dtype())) {
    throw at_line(DTypeError(std::string("[histc] got ") + name_of(x.dtype()) +
                             ", needs a floating dtype; convert with to(kFloat32)"),
                  where);
  }
  if (bins < 1 || min > max) {
    throw at_line(UserError("[histc] got " + std::to_string(bins) + " bins from " + std::to_string(min) + " to " +
                            std::to_string(max) + "; at least one bin, and min must not be above max"),
                  where);
  }
  SourceScope scope(where);
  NoGrad no_grad;
  const Tensor whole = reduce_pending("histc", x, {}, where);
  require_implicit_redistribution("histc", whole, unsharded_layout(whole), where);
  const GraphScope graph(Graph(IntrusivePtr<GraphCore>(&x.value()->graph())));
  const Layout everywhere = Layout::replicated(x.mesh());
  Tensor low, high;
  if (min == max && whole.numel() > 0) {
    std::tie(low, high) = aminmax(whole, {}, false, where);
  } else {
    low = full_with_layout({}, min, kFloat64, everywhere, where);
    high = full_with_layout({}, max, kFloat64, everywhere, where);
  }
  return math::combine("histc", whole, record(histc_op, CountAttrs{bins}, {&whole, &low, &high}, where), where);
}

}  // namespace dtorch
