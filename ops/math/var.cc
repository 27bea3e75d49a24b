// var(x, dims), std(x, dims) and with the mean: sum((x - mean)^2) / max(0, count - correction), its root. Over sharded
// dims in two passes, both in float64: the global mean, then each device's squared deviations from it, pending as
// Partial(sum) and reduced; one number a row travels each time. Gradients as PyTorch's: of the variance 2 (x - mean) g
// / (count - correction); of the deviation that over 2 std, 0 where std is 0; of the mean g / count.
#include <limits>
#include <tuple>

#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/parts.h"
#include "ops/math/products.h"
#include "ops/math/reductions.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>
#include <ATen/ops/std.h>
#include <ATen/ops/std_cpu_dispatch.h>
#include <ATen/ops/std_mean.h>
#include <ATen/ops/std_mean_cpu_dispatch.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/var.h>
#include <ATen/ops/var_cpu_dispatch.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/var_mean_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef var_op, std_op, var_mean_op, std_mean_op, squared_deviations_op;

namespace {

using namespace math;

struct VarAttrs {
  std::vector<int64_t> dims;  // ascending
  bool keepdim = false;
  double correction = 1;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("keepdim", keepdim);
    v("correction", correction);
  }
};

// Outputs: the variance or its root; with_mean: and the mean.
template <size_t kOutputs>
std::vector<OutputMeta> var_infer(const InferContext& context) {
  const auto& attributes = context.attributes<VarAttrs>();
  const Shape shape = reduced_shape(context.shape(0), attributes.dims, attributes.keepdim);
  return std::vector<OutputMeta>(kOutputs, {shape, context.dtype(0)});
}
template <size_t kOutputs>
Rule var_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<VarAttrs>();
  Rule rule = reduce_rule(context.shape(0).ndim(), attributes.dims, attributes.keepdim, std::nullopt, Linear::kNo);
  rule.output_letters.resize(kOutputs, rule.output_letters[0]);
  for (Row& row : rule.rows) row.outputs.resize(kOutputs, row.outputs[0]);
  return rule;
}

// squared_deviations(x, mean): sum((x - mean)^2) over dims, in float64; mean has size 1 there.
std::vector<OutputMeta> deviations_infer(const InferContext& context) {
  const auto& attributes = context.attributes<VarAttrs>();
  return {{reduced_shape(context.shape(0), attributes.dims, attributes.keepdim), kFloat64}};
}
Rule deviations_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<VarAttrs>();
  const Rule rule = reduce_rule(context.shape(0).ndim(), attributes.dims, attributes.keepdim, kSum, Linear::kNo);
  Letters mean = rule.input_letters[0];
  for (int64_t d : attributes.dims) mean[d] = kNoLetter;
  return letters_rule({rule.input_letters[0], mean}, rule.output_letters[0]);
}

// g: of the variance.
Tensor var_gradient(const Tensor& g, const Tensor& x, const VarAttrs& attributes) {
  const double freedom = static_cast<double>(count_over(x.shape(), attributes.dims)) - attributes.correction;
  const Tensor deviation = sub(x, mean(x, attributes.dims, /*keepdim=*/true));
  const Tensor outer = with_reduced_dims(g, attributes.dims, attributes.keepdim);
  if (freedom > 0) return mul(mul(outer, 2 / freedom), deviation);
  // As PyTorch: 2 / 0 times the deviation.
  const Tensor infinite = full_like(deviation, std::numeric_limits<double>::infinity());
  return mul(outer, where(eq(deviation, 0), std::numeric_limits<double>::quiet_NaN(), infinite));
}
Tensor std_gradient(const Tensor& g, const Tensor& x, const Tensor& y, const VarAttrs& attributes) {
  return var_gradient(where(eq(y, 0), 0, div(g, mul(y, 2))), x, attributes);
}

template <bool kRoot>
std::vector<Tensor> gradient_of(const Tensor& g, const Tensor& g_mean, const Tensor& x, const Tensor& y,
                                const VarAttrs& attributes) {
  Tensor gradient;
  if (g.defined()) gradient = kRoot ? std_gradient(g, x, y, attributes) : var_gradient(g, x, attributes);
  if (g_mean.defined()) {
    const Tensor share =
        div(with_reduced_dims(g_mean, attributes.dims, attributes.keepdim), count_over(x.shape(), attributes.dims));
    const Tensor of_mean = place_gradient(expand(share, {x.shape().begin(), x.shape().end()}), x.meta());
    gradient = gradient.defined() ? add(gradient, of_mean) : of_mean;
  }
  return {gradient};
}
template <bool kRoot, bool kMean>
std::vector<Tensor> recorded_gradient(const GradientContext& context) {
  return gradient_of<kRoot>(context.grad_output(0), kMean ? context.grad_output(1) : Tensor(), context.input(0),
                            kRoot ? context.output(0) : Tensor(), context.attributes<VarAttrs>());
}

#if DTORCH_WITH_KERNELS
template <bool kRoot, bool kMean>
void var_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<VarAttrs>();
  const at::Tensor& x = input(context, 0);
  const bool keepdim = attributes.keepdim;
  if (context.output_box(0).empty()) {  // no rows: ATen would warn of too few elements
    for (size_t i = 0; i < context.num_outputs(); ++i) {
      set_output(context, i, at::empty(output_sizes(context, i), x.options()));
    }
    return;
  }
  const std::optional<at::Scalar> correction = attributes.correction;
  at::OptionalIntArrayRef dims = attributes.dims;
  if (attributes.dims.size() == static_cast<size_t>(x.dim())) dims = std::nullopt;
  if constexpr (kMean) {
    auto [spread, mean] = kRoot ? DTORCH_ATEN(std_mean)(x, dims, correction, keepdim)
                                : DTORCH_ATEN(var_mean)(x, dims, correction, keepdim);
    set_output(context, 0, spread);
    set_output(context, 1, mean);
  } else {
    set_output(context, 0,
               kRoot ? DTORCH_ATEN(std)(x, dims, correction, keepdim) : DTORCH_ATEN(var)(x, dims, correction, keepdim));
  }
}

void deviations_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<VarAttrs>();
  at::Tensor squares = input(context, 0).to(at::kDouble).sub(input(context, 1));
  squares.mul_(squares);
  set_output(context, 0, DTORCH_ATEN(sum)(squares, attributes.dims, attributes.keepdim, at::kDouble));
}
#endif

template <Tensor (*kFunction)(const Tensor&, const std::vector<int64_t>&, double, bool, Where)>
std::vector<Sample> var_samples() {
  const auto call = [](std::vector<int64_t> dims, double correction, bool keepdim) {
    return [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{kFunction(in[0], dims, correction, keepdim, Where::current())};
    };
  };
  return {{.name = "all dims", .inputs = {normal({5, 3})}, .call = call({}, 1, false)},
          {.name = "two of three dims", .inputs = {normal({5, 1, 4}, kFloat64)}, .call = call({0, -1}, 0, true)},
          {.name = "one dim", .inputs = {normal({7, 2}, kFloat64)}, .call = call({0}, 1, false)}};
}
template <std::pair<Tensor, Tensor> (*kFunction)(const Tensor&, const std::vector<int64_t>&, double, bool, Where)>
std::vector<Sample> var_mean_samples() {
  const auto call = [](std::vector<int64_t> dims, double correction, bool keepdim) {
    return [=](const std::vector<Tensor>& in) {
      auto [spread, mean] = kFunction(in[0], dims, correction, keepdim, Where::current());
      return std::vector<Tensor>{spread, mean};
    };
  };
  return {{.name = "all dims", .inputs = {normal({5, 3})}, .call = call({}, 1, false)},
          {.name = "one dim, size 1", .inputs = {normal({5, 1}, kFloat64)}, .call = call({0}, 0, true)}};
}

// The spread and the mean over sharded dims. Without gradients.
std::pair<Tensor, Tensor> over_parts(const char* op, const Tensor& x, const VarAttrs& attributes, bool root,
                                     const Where& where) {
  const double count = static_cast<double>(count_over(x.shape(), attributes.dims));
  const Tensor mean = div(sum(x, attributes.dims, /*keepdim=*/true, kFloat64, where), count, where);
  const Tensor squares = combine(op, x, record(squared_deviations_op, attributes, {&x, &mean}, where), where);
  Tensor spread = div(squares, std::max(0.0, count - attributes.correction), where);
  if (root) spread = sqrt(spread, where);
  return {to(spread, x.dtype(), where),
          to(without_reduced_dims(mean, attributes.dims, attributes.keepdim), x.dtype(), where)};
}

template <bool kRoot, bool kMean>
std::pair<Tensor, Tensor> spread_of(const OperatorDef& op, const Tensor& input, const std::vector<int64_t>& dims,
                                    double correction, bool keepdim, const Where& where) {
  if (!is_floating(input.dtype())) {
    throw at_line(DTypeError(std::string("[") + op.name + "] got " + name_of(input.dtype()) +
                             ", needs a floating dtype; convert with to(kFloat32)"),
                  where);
  }
  const VarAttrs attributes{dims_of_call(dims, input, op.name, where), keepdim, correction};
  const Tensor x = reduce_pending(op.name, input, {}, where);
  if (!any_sharded(x, attributes.dims)) {
    if constexpr (kMean) {
      auto [spread, mean] = record_many<2>(op, attributes, {&x}, where);
      return {spread, mean};
    }
    return {record(op, attributes, {&x}, where), Tensor()};
  }
  require_implicit_redistribution(op.name, x, unsharded_over(x, attributes.dims), where);
  Tensor results[2];
  {
    NoGrad no_grad;
    std::tie(results[0], results[1]) = over_parts(op.name, x, attributes, kRoot, where);
  }
  if (grad_enabled() && x.requires_grad()) {
    const auto gradient = [attributes, saved = x.detach(), y = results[0]](const GradientContext& context) {
      return gradient_of<kRoot>(context.grad_output(0), kMean ? context.grad_output(1) : Tensor(), saved, y,
                                attributes);
    };
    set_custom_gradient(op.name, {&x, 1}, {results, kMean ? 2u : 1u}, gradient, where);
  }
  return {results[0], results[1]};
}

}  // namespace

constinit OperatorDef var_op = {
    .name = "var",
    .signature = "var(x, dims, correction, keepdim) -> Tensor",
    .attributes = attribute_codec<VarAttrs>(),
    .infer = var_infer<1>,
    .rule = var_rule<1>,
    .kernel = DTORCH_KERNEL(var_kernel<false, false>),
    .gradient = recorded_gradient<false, false>,
    .samples = var_samples<var>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
};
constinit OperatorDef std_op = {
    .name = "std",
    .signature = "std(x, dims, correction, keepdim) -> Tensor",
    .attributes = attribute_codec<VarAttrs>(),
    .infer = var_infer<1>,
    .rule = var_rule<1>,
    .kernel = DTORCH_KERNEL(var_kernel<true, false>),
    .gradient = recorded_gradient<true, false>,
    .samples = var_samples<std>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};
constinit OperatorDef var_mean_op = {
    .name = "var_mean",
    .signature = "var_mean(x, dims, correction, keepdim) -> (Tensor, Tensor)",
    .attributes = attribute_codec<VarAttrs>(),
    .infer = var_infer<2>,
    .rule = var_rule<2>,
    .kernel = DTORCH_KERNEL(var_kernel<false, true>),
    .gradient = recorded_gradient<false, true>,
    .samples = var_mean_samples<var_mean>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
};
constinit OperatorDef std_mean_op = {
    .name = "std_mean",
    .signature = "std_mean(x, dims, correction, keepdim) -> (Tensor, Tensor)",
    .attributes = attribute_codec<VarAttrs>(),
    .infer = var_infer<2>,
    .rule = var_rule<2>,
    .kernel = DTORCH_KERNEL(var_kernel<true, true>),
    .gradient = recorded_gradient<true, true>,
    .samples = var_mean_samples<std_mean>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};
constinit OperatorDef squared_deviations_op = {
    .name = "squared_deviations",
    .signature = "var/std(x, mean, dims, keepdim) -> sum of squared deviations",
    .attributes = attribute_codec<VarAttrs>(),
    .infer = deviations_infer,
    .rule = deviations_rule,
    .kernel = DTORCH_KERNEL(deviations_kernel),
    .saved_inputs = 0,
};

Tensor var(const Tensor& x, const std::vector<int64_t>& dims, double correction, bool keepdim, Where where) {
  return spread_of<false, false>(var_op, x, dims, correction, keepdim, where).first;
}
Tensor std(const Tensor& x, const std::vector<int64_t>& dims, double correction, bool keepdim, Where where) {
  return spread_of<true, false>(std_op, x, dims, correction, keepdim, where).first;
}
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const std::vector<int64_t>& dims, double correction, bool keepdim,
                                   Where where) {
  return spread_of<false, true>(var_mean_op, x, dims, correction, keepdim, where);
}
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const std::vector<int64_t>& dims, double correction, bool keepdim,
                                   Where where) {
  return spread_of<true, true>(std_mean_op, x, dims, correction, keepdim, where);
}

}  // namespace dtorch
