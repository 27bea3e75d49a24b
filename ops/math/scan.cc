// cumsum(x, dim), cumprod(x, dim), logcumsumexp(x, dim): running values. Other dims keep their shards; cumsum is
// linear. Along a sharded dim the result is sharded as x is: the totals of the parts, one entry a part, are gathered
// (scan_totals), and each device continues from the total of the parts before its own (scan_shifted), in float64 for
// floats. Integers and bool are added and multiplied in int64. Gradients: of cumsum the running sum of g from the end;
// the others by a recurrence from the end (scan_gradient), which needs the whole dim.
#include <limits>

#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/parts.h"
#include "ops/math/reductions.h"
#include "ops/move/combine.h"
#include "ops/shape/operators.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumprod_cpu_dispatch.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/cumsum_cpu_dispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/flip_native.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logaddexp_cpu_dispatch.h>
#include <ATen/ops/logcumsumexp.h>
#include <ATen/ops/logcumsumexp_native.h>
#include <ATen/ops/logsumexp_native.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/prod_cpu_dispatch.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef cumsum_op, cumprod_op, logcumsumexp_op, scan_totals_op, scan_shifted_op, scan_gradient_op;

namespace {

using namespace math;

enum ScanKind : int64_t { kRunningSum = 0, kRunningProduct = 1, kRunningLogSumExp = 2 };

struct ScanAttrs {
  int64_t dim = 0;
  int64_t kind = kRunningSum;
  bool reverse = false;  // from the end; sums only
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("kind", kind);
    v("reverse", reverse);
  }
};

DType travelling_dtype(DType dtype) { return is_floating(dtype) ? kFloat64 : dtype; }

// --- along a dim that isn't sharded
Rule scan_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<ScanAttrs>();
  const int64_t ndim = context.shape(0).ndim(), blocked[] = {attributes.dim};
  const Linear linear = attributes.kind == kRunningSum ? Linear::kInAll : Linear::kNo;
  return pointwise_except_rule(ndim, ndim == 0 ? std::span<const int64_t>() : blocked, linear);
}

// --- over parts
std::vector<OutputMeta> totals_infer(const InferContext& context) {
  const TensorMeta& x = *context.inputs[0];
  return {{shape_by_part(x, {context.attributes<ScanAttrs>().dim}), travelling_dtype(x.dtype)}};
}
Rule totals_rule(const InferContext& context, std::span<const OutputMeta>) {
  const bool is_sum = context.attributes<ScanAttrs>().kind == kRunningSum;
  return pointwise_except_rule(context.shape(0).ndim(), {}, is_sum ? Linear::kInAll : Linear::kNo);
}
Rule shifted_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const int64_t dim = context.attributes<ScanAttrs>().dim;
  Rule rule = totals_rule(context, outputs);
  rule.input_letters.push_back(rule.input_letters[0]);
  rule.input_letters[1][dim] = kNoLetter;
  for (Row& row : rule.rows) row.inputs.push_back(row.inputs[0].is_shard(dim) ? Replicate() : row.inputs[0]);
  return rule;
}

// scan_gradient(g, x, y): with y the running values, S[i] = g[i] + f[i] S[i + 1] from the end; then
//   products:     f[i] = x[i + 1],              gradient y[i - 1] S[i]: no division, so that zeros are as any value
//   log-sum-exps: f[i] = exp(y[i] - y[i + 1]),  gradient exp(x[i] - y[i]) S[i]; y never falls, so nothing overflows
Rule scan_gradient_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim(), blocked[] = {context.attributes<ScanAttrs>().dim};
  Rule rule = pointwise_except_rule(ndim, ndim == 0 ? std::span<const int64_t>() : blocked, Linear::kNo);
  rule.input_letters.resize(3, rule.input_letters[0]);
  for (Row& row : rule.rows) row.inputs.resize(3, row.inputs[0]);
  for (ReduceOp kind : {kSum, kAvg}) rule.rows.push_back({{Partial(kind), Replicate(), Replicate()}, {Partial(kind)}});
  return rule;
}

#if DTORCH_WITH_KERNELS
at::Tensor running(const at::Tensor& x, const ScanAttrs& attributes) {
  if (x.numel() == 0) return at::empty_like(x);
  if (attributes.reverse) {
    const at::Tensor flipped = DTORCH_BY_DEVICE(at::native::flip, at::flip)(x, attributes.dim);
    return DTORCH_BY_DEVICE(at::native::flip, at::flip)(DTORCH_ATEN(cumsum)(flipped, attributes.dim, x.scalar_type()),
                                                        attributes.dim);
  }
  if (attributes.kind == kRunningSum) return DTORCH_ATEN(cumsum)(x, attributes.dim, x.scalar_type());
  if (attributes.kind == kRunningProduct) return DTORCH_ATEN(cumprod)(x, attributes.dim, x.scalar_type());
  return DTORCH_BY_DEVICE(at::native::logcumsumexp, at::logcumsumexp)(x, attributes.dim);
}
// Over the whole dim, which stays with size 1.
at::Tensor total(const at::Tensor& x, const ScanAttrs& attributes) {
  if (attributes.kind == kRunningSum) return DTORCH_ATEN(sum)(x, attributes.dim, true, x.scalar_type());
  if (attributes.kind == kRunningProduct) return DTORCH_ATEN(prod)(x, attributes.dim, true, x.scalar_type());
  return at::native::logsumexp(x, attributes.dim, true);
}

void scan_kernel(KernelContext& context) {
  set_output(context, 0, running(input(context, 0), context.attributes<ScanAttrs>()));
}
void totals_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ScanAttrs>();
  const at::Tensor x = input(context, 0).to(scalar_type(context.output_meta(0).dtype));
  if (attributes.kind == kRunningLogSumExp && context.input_box(0).empty()) {
    set_output(context, 0, at::full(output_sizes(context, 0), -std::numeric_limits<double>::infinity(), x.options()));
    return;
  }
  set_output(context, 0, total(x, attributes));
}
void shifted_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ScanAttrs>();
  const at::Tensor &x = input(context, 0), &totals = input(context, 1);
  const int64_t own = part_number(context.input_meta(0), attributes.dim, context.device());
  at::Tensor y = running(x.to(totals.scalar_type()), attributes);
  const int64_t first = attributes.reverse ? own + 1 : 0;
  const int64_t count = attributes.reverse ? totals.size(attributes.dim) - first : own;
  if (count > 0) {
    const at::Tensor before = total(totals.narrow(attributes.dim, first, count), attributes);
    if (attributes.kind == kRunningSum) {
      y.add_(before);
    } else if (attributes.kind == kRunningProduct) {
      y.mul_(before);
    } else {
      y = DTORCH_ATEN(logaddexp)(y, before);
    }
  }
  set_output(context, 0, y.to(x.scalar_type()));
}

// [rows, size of dim], float64.
at::Tensor rows_along(const at::Tensor& x, int64_t dim) {
  const at::Tensor last = x.dim() == 0 ? x.reshape({1}) : x.movedim(dim, -1);
  return last.to(at::kDouble).contiguous();
}

void scan_gradient_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ScanAttrs>();
  const at::Tensor g = rows_along(input(context, 0), attributes.dim), x = rows_along(input(context, 1), attributes.dim),
                   y = rows_along(input(context, 2), attributes.dim);
  at::Tensor out = at::empty_like(g);
  const int64_t size = g.size(-1);
  const bool is_product = attributes.kind == kRunningProduct;
  for (int64_t begin = 0; begin < g.numel(); begin += size) {
    const double *gs = g.const_data_ptr<double>() + begin, *xs = x.const_data_ptr<double>() + begin,
                 *ys = y.const_data_ptr<double>() + begin;
    double *outs = out.mutable_data_ptr<double>() + begin, rest = 0;
    for (int64_t i = size - 1; i >= 0; --i) {
      double factor = 0;
      if (i + 1 < size) factor = is_product ? xs[i + 1] : ys[i] == ys[i + 1] ? 1 : std::exp(ys[i] - ys[i + 1]);
      rest = gs[i] + factor * rest;
      if (is_product) {
        outs[i] = i == 0 ? rest : ys[i - 1] * rest;
      } else {
        outs[i] = std::isinf(xs[i]) && xs[i] < 0 ? 0 : std::exp(xs[i] - ys[i]) * rest;
      }
    }
  }
  const at::Tensor& like = input(context, 0);
  const at::Tensor placed = like.dim() == 0 ? out.reshape({}) : out.movedim(-1, attributes.dim);
  set_output(context, 0, placed.to(like.scalar_type()).contiguous());
}
#endif

Tensor scan_of(const OperatorDef& op, const ScanAttrs& attributes, const Tensor& x, const Where& where);

// y is read by products and log-sum-exps only, and x too.
Tensor gradient_of_scan(const Tensor& g, const Tensor& x, const Tensor& y, const ScanAttrs& attributes) {
  const Where where = Where::current();
  if (attributes.kind == kRunningSum) {
    return scan_of(cumsum_op, {attributes.dim, kRunningSum, !attributes.reverse}, g, where);
  }
  const auto whole = [&](const Tensor& t) { return shaping::gather_dim("scan_gradient", t, attributes.dim, where); };
  const Tensor whole_g = whole(g), whole_x = whole(x), whole_y = whole(y);
  return record(scan_gradient_op, attributes, {&whole_g, &whole_x, &whole_y}, where);
}
std::vector<Tensor> scan_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<ScanAttrs>();
  if (attributes.kind == kRunningSum) return {gradient_of_scan(context.grad_output(0), {}, {}, attributes)};
  return {gradient_of_scan(context.grad_output(0), context.input(0), context.output(0), attributes)};
}

Tensor scan_of(const OperatorDef& op, const ScanAttrs& attributes, const Tensor& x, const Where& where) {
  if (!any_sharded(x, {attributes.dim})) return record(op, attributes, {&x}, where);
  require_implicit_redistribution(op.name, x, unsharded_layout(x, attributes.dim), where);
  Tensor y;
  {
    NoGrad no_grad;
    const Tensor part_totals = record(scan_totals_op, attributes, {&x}, where);
    const Tensor totals = shaping::gather_dim(op.name, part_totals, attributes.dim, where);
    y = record(scan_shifted_op, attributes, {&x, &totals}, where);
  }
  if (grad_enabled() && x.requires_grad()) {
    const bool reads_values = attributes.kind != kRunningSum;
    const auto gradient = [attributes, saved_x = reads_values ? x.detach() : Tensor(),
                           saved_y = reads_values ? y : Tensor()](const GradientContext& context) {
      return std::vector<Tensor>{gradient_of_scan(context.grad_output(0), saved_x, saved_y, attributes)};
    };
    set_custom_gradient(op.name, {&x, 1}, {&y, 1}, gradient, where);
  }
  return y;
}

template <ScanKind kKind>
Tensor scan_call(const OperatorDef& op, const Tensor& x, int64_t dim, std::optional<DType> dtype, const Where& where) {
  const ScanAttrs attributes{dim_of_call(dim, x, op.name, where), kKind};
  const DType result = dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64);
  // A running sum of what is pending stays pending; not through a conversion of integers, which isn't linear.
  const bool keeps = kKind == kRunningSum && (x.dtype() == result || (is_floating(x.dtype()) && is_floating(result)));
  const Tensor whole = reduce_pending(op.name, x, keeps ? std::optional(kSum) : std::nullopt, where);
  return scan_of(op, attributes, to(whole, result, where), where);
}

template <Tensor (*kFunction)(const Tensor&, int64_t, std::optional<DType>, Where)>
std::vector<Sample> scan_samples() {
  const auto along = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{kFunction(in[0], dim, {}, Where::current())};
    };
  };
  return {{.name = "uneven", .inputs = {normal({5, 3}, kFloat64)}, .call = along(0)},
          {.name = "float32, last dim", .inputs = {normal({2, 7})}, .call = along(-1)},
          {.name = "zeros, size 1", .inputs = {{{7, 1}, kFloat64, SampleFill::kIndices, 3}}, .call = along(0)},
          {.name = "integers", .inputs = {{{5, 2}, kInt32, SampleFill::kPositive, 0, false}}, .call = along(0)},
          {.name = "empty", .inputs = {normal({0, 3})}, .call = along(0)}};
}
std::vector<Sample> logcumsumexp_samples() {
  const auto along = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) { return std::vector<Tensor>{logcumsumexp(in[0], dim)}; };
  };
  return {{.name = "uneven", .inputs = {normal({5, 3}, kFloat64)}, .call = along(0)},
          {.name = "float32, size 1", .inputs = {normal({1, 7})}, .call = along(-1)}};
}

}  // namespace

constinit OperatorDef cumsum_op = {
    .name = "cumsum",
    .signature = "cumsum(x, dim, dtype) -> Tensor",
    .attributes = attribute_codec<ScanAttrs>(),
    .infer = infer_same,
    .rule = scan_rule,
    .kernel = DTORCH_KERNEL(scan_kernel),
    .gradient = scan_gradient,
    .samples = scan_samples<cumsum>,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef cumprod_op = {
    .name = "cumprod",
    .signature = "cumprod(x, dim, dtype) -> Tensor",
    .attributes = attribute_codec<ScanAttrs>(),
    .infer = infer_same,
    .rule = scan_rule,
    .kernel = DTORCH_KERNEL(scan_kernel),
    .gradient = scan_gradient,
    .samples = scan_samples<cumprod>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};
constinit OperatorDef logcumsumexp_op = {
    .name = "logcumsumexp",
    .signature = "logcumsumexp(x, dim) -> Tensor",
    .attributes = attribute_codec<ScanAttrs>(),
    .infer = infer_same,
    .rule = scan_rule,
    .kernel = DTORCH_KERNEL(scan_kernel),
    .gradient = scan_gradient,
    .samples = logcumsumexp_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};
constinit OperatorDef scan_totals_op = {
    .name = "scan_totals",
    .signature = "cumsum/cumprod/logcumsumexp(x, dim, kind) -> total of every part",
    .attributes = attribute_codec<ScanAttrs>(),
    .infer = totals_infer,
    .rule = totals_rule,
    .kernel = DTORCH_KERNEL(totals_kernel),
    .linear_in = "x (sums)",
    .saved_inputs = 0,
};
constinit OperatorDef scan_shifted_op = {
    .name = "scan_shifted",
    .signature = "cumsum/cumprod/logcumsumexp(x, totals, dim, kind) -> Tensor",
    .attributes = attribute_codec<ScanAttrs>(),
    .infer = infer_same,
    .rule = shifted_rule,
    .kernel = DTORCH_KERNEL(shifted_kernel),
    .linear_in = "both (sums)",
    .saved_inputs = 0,
};
constinit OperatorDef scan_gradient_op = {
    .name = "scan_gradient",
    .signature = "cumsum/cumprod/logcumsumexp(g, x, y, dim, kind) -> gradient",
    .attributes = attribute_codec<ScanAttrs>(),
    .infer = infer_same,
    .rule = scan_gradient_rule,
    .kernel = DTORCH_KERNEL(scan_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype, Where where) {
  return scan_call<kRunningSum>(cumsum_op, x, dim, dtype, where);
}
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype, Where where) {
  return scan_call<kRunningProduct>(cumprod_op, x, dim, dtype, where);
}
Tensor logcumsumexp(const Tensor& x, int64_t dim, Where where) {
  return scan_call<kRunningLogSumExp>(logcumsumexp_op, x, dim, x.dtype(), where);
}

}  // namespace dtorch
