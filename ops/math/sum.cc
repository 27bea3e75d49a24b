// sum(x, dims) and mean(x, dims). The kernel adds up this device's part (mean: and divides by the global count);
// sharding a reduced dim gives Partial(sum), which sum() and mean() then reduce; sum_pending() leaves it. Partial
// inputs pass (linear). Gradient: g expanded to the input's shape (mean: divided by the count).
#include <algorithm>

#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef sum_op, mean_op;

namespace {

using namespace math;

struct SumAttrs {
  std::vector<int64_t> dims;  // ascending, not negative
  bool keepdim = false;
  DType dtype = kFloat32;  // of the result; halves are added up in float32
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("keepdim", keepdim);
    v("dtype", dtype);
  }
};

int64_t count_of(const Shape& shape, const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= shape[d];
  return count;
}

std::vector<OutputMeta> sum_infer(const InferContext& context) {
  const auto& attributes = context.attributes<SumAttrs>();
  return {{reduced_shape(context.shape(0), attributes.dims, attributes.keepdim), attributes.dtype}};
}

Rule sum_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<SumAttrs>();
  return reduce_rule(context.shape(0).ndim(), attributes.dims, attributes.keepdim, kSum, Linear::kInFirst);
}

// g of a reduced output, with the reduced dims back as dims of size 1.
Tensor with_reduced_dims(Tensor g, const SumAttrs& attributes) {
  if (attributes.keepdim) return g;
  for (int64_t d : attributes.dims) g = unsqueeze(g, d);
  return g;
}

std::vector<Tensor> sum_gradient(const GradientContext& context) {
  const TensorMeta& meta = context.input_meta(0);
  const Tensor g = with_reduced_dims(context.grad_output(0), context.attributes<SumAttrs>());
  const Tensor expanded = expand(g, {meta.global_shape.begin(), meta.global_shape.end()});
  return {place_gradient(fit_gradient(expanded, meta), meta)};
}

std::vector<Tensor> mean_gradient(const GradientContext& context) {
  const TensorMeta& meta = context.input_meta(0);
  const auto& attributes = context.attributes<SumAttrs>();
  const Tensor g = with_reduced_dims(context.grad_output(0), attributes);
  const Tensor expanded = expand(g, {meta.global_shape.begin(), meta.global_shape.end()});
  const Tensor placed = place_gradient(fit_gradient(expanded, meta), meta);
  return {div(placed, count_of(meta.global_shape, attributes.dims))};
}

#if DTORCH_WITH_KERNELS
at::Tensor local_sum(const KernelContext& context, DType dtype) {
  const auto& attributes = context.attributes<SumAttrs>();
  // Without dims ATen would reduce all of them.
  if (attributes.dims.empty()) return input(context, 0).to(scalar_type(dtype), /*non_blocking=*/false, /*copy=*/true);
  return DTORCH_ATEN(sum)(input(context, 0), attributes.dims, attributes.keepdim, scalar_type(dtype));
}
void sum_kernel(KernelContext& context) {
  set_output(context, 0, local_sum(context, context.attributes<SumAttrs>().dtype));
}
void mean_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<SumAttrs>();
  at::Tensor total = local_sum(context, accumulation_dtype(attributes.dtype));
  total.div_(count_of(context.input_meta(0).global_shape, attributes.dims));
  set_output(context, 0, total.to(scalar_type(attributes.dtype)));
}
#endif

std::vector<Sample> sum_samples() {
  return {{.name = "all dims",
           .inputs = {normal({5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{sum(in[0])}; }},
          {.name = "two of three dims",
           .inputs = {normal({5, 1, 4}, kFloat64)},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{sum(in[0], {0, -1}, true)};
               }},
          {.name = "integers",
           .inputs = {integers({4, 3}, kInt32)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{sum(in[0], {0})}; }},
          {.name = "empty", .inputs = {normal({0, 3})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{sum(in[0], {0})};
           }}};
}
std::vector<Sample> mean_samples() {
  return {{.name = "all dims",
           .inputs = {normal({5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{mean(in[0])}; }},
          {.name = "one dim", .inputs = {normal({5, 1, 4}, kFloat64)}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{mean(in[0], {0}, true)};
           }}};
}

bool is_half(DType dtype) { return dtype == kFloat16 || dtype == kBFloat16; }

bool is_extreme(const Placement& p) { return p.is_partial(kMax) || p.is_partial(kMin); }

bool has_extremes(const Tensor& x) { return std::ranges::any_of(x.placements(), is_extreme); }

// A pending maximum or minimum isn't linear: it is reduced first.
Tensor without_extremes(const char* op, const Tensor& x, const Where& where) {
  Placements placements = x.placements();
  std::ranges::replace_if(placements, is_extreme, Replicate());
  const Layout layout = x.layout().with_placements(placements, x.ndim());
  require_implicit_redistribution(op, x, layout, where);
  return x.redistribute(layout, where);
}

// Local kernel, then reduction of what became Partial. Halves travel as float32, so that rounding to half happens once.
Tensor reduce_sum(const OperatorDef& op, const Tensor& x, SumAttrs attributes, const Where& where) {
  if (has_extremes(x)) return reduce_sum(op, without_extremes(op.name, x, where), attributes, where);
  const DType dtype = attributes.dtype;
  bool combines = false;
  for (const Placement& p : x.placements()) {
    combines = combines || (p.is_shard() && std::binary_search(attributes.dims.begin(), attributes.dims.end(), p.dim));
  }
  if (combines && is_half(dtype)) attributes.dtype = kFloat32;
  return to(combine(op.name, x, record(op, attributes, {&x}, where), where), dtype, where);
}

DType sum_dtype(const Tensor& x) { return is_floating(x.dtype()) ? x.dtype() : kInt64; }

}  // namespace

constinit OperatorDef sum_op = {
    .name = "sum",
    .signature = "sum(x, dims, keepdim) -> Tensor",
    .attributes = attribute_codec<SumAttrs>(),
    .infer = sum_infer,
    .rule = sum_rule,
    .kernel = DTORCH_KERNEL(sum_kernel),
    .gradient = sum_gradient,
    .samples = sum_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};

constinit OperatorDef mean_op = {
    .name = "mean",
    .signature = "mean(x, dims, keepdim) -> Tensor",
    .attributes = attribute_codec<SumAttrs>(),
    .infer = sum_infer,
    .rule = sum_rule,
    .kernel = DTORCH_KERNEL(mean_kernel),
    .gradient = mean_gradient,
    .samples = mean_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};

Tensor sum_pending(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, std::optional<DType> dtype,
                   Where where) {
  if (has_extremes(x)) return sum_pending(without_extremes("sum", x, where), dims, keepdim, dtype, where);
  return record(sum_op, SumAttrs{normalize_dims(dims, x.ndim(), "sum", where), keepdim, dtype.value_or(sum_dtype(x))},
                {&x}, where);
}
Tensor sum(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, std::optional<DType> dtype, Where where) {
  return reduce_sum(sum_op, x, {normalize_dims(dims, x.ndim(), "sum", where), keepdim, dtype.value_or(sum_dtype(x))},
                    where);
}
Tensor sum(const Tensor& x, Where where) { return sum(x, {}, false, {}, where); }

Tensor mean(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, Where where) {
  if (!is_floating(x.dtype())) {
    throw at_line(DTypeError(std::string("[mean] got ") + name_of(x.dtype()) +
                             ", needs a floating dtype; convert with to(kFloat32)"),
                  where);
  }
  return reduce_sum(mean_op, x, {normalize_dims(dims, x.ndim(), "mean", where), keepdim, x.dtype()}, where);
}
Tensor mean(const Tensor& x, Where where) { return mean(x, {}, false, where); }

Tensor Tensor::sum(Where where) const { return dtorch::sum(*this, where); }
Tensor Tensor::sum(const std::vector<int64_t>& dims, bool keepdim, Where where) const {
  return dtorch::sum(*this, dims, keepdim, {}, where);
}
Tensor Tensor::mean(Where where) const { return dtorch::mean(*this, where); }
Tensor Tensor::mean(const std::vector<int64_t>& dims, bool keepdim, Where where) const {
  return dtorch::mean(*this, dims, keepdim, where);
}

}  // namespace dtorch
