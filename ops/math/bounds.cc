// minimum(a, b), maximum(a, b), clamp(x, min, max). Layouts: same on every dim. Both minimum and maximum are
// non-decreasing in each operand, so that Partial(max) and Partial(min) pass with the other operand Replicate; so does
// clamp. Gradients: g where the operand was taken, half of it where both are equal; g inside the bounds.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/BinaryOps.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_cpu_dispatch.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/maximum_cpu_dispatch.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/minimum_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

// own: the reduction that the operator itself is; parts of it pair up.
template <ReduceOp kOwn>
Rule bound_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, Linear::kNo);
  for (ReduceOp kind : {kMax, kMin}) {
    rule.rows.push_back({{Partial(kind), Replicate()}, {Partial(kind)}});
    rule.rows.push_back({{Replicate(), Partial(kind)}, {Partial(kind)}});
  }
  rule.rows.push_back({{Partial(kOwn), Partial(kOwn)}, {Partial(kOwn)}});
  return rule;
}

// As LibTorch: where(a == b, g / 2, g), 0 where the operand was not taken.
template <bool kMaximum>
std::vector<Tensor> bound_gradient(const GradientContext& context) {
  const Tensor a = context.input(0), b = context.input(1);
  const Tensor shared = where(eq(a, b), div(context.grad_output(0), 2), context.grad_output(0));
  std::vector<Tensor> gradients(2);
  for (size_t i = 0; i < 2; ++i) {
    if (!context.needs_grad(i)) continue;
    const bool lost_when_less = kMaximum == (i == 0);
    gradients[i] = fit_gradient(where(lost_when_less ? lt(a, b) : gt(a, b), 0, shared), context.input_meta(i));
  }
  return gradients;
}

struct ClampAttrs {
  bool has_min = false, has_max = false;
  int64_t number = kFloating;  // kind of both bounds
  template <class V>
  void fields(V& v) {
    v("has_min", has_min);
    v("has_max", has_max);
    v("number", number);
  }
};

std::vector<OutputMeta> clamp_infer(const InferContext& context) {
  refuse_bool(context);
  return {{context.shape(0), result_dtype(context.inputs, context.attributes<ClampAttrs>().number)}};
}

std::vector<Tensor> clamp_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<ClampAttrs>();
  const Tensor x = context.input(0);
  Tensor inside;
  if (attributes.has_min) inside = ge(x, context.scalar(0).as_double());
  if (attributes.has_max) {
    const Tensor below = le(x, context.scalar(1).as_double());
    inside = inside.defined() ? logical_and(inside, below) : below;
  }
  return {where(inside, context.grad_output(0), 0)};
}

#if DTORCH_WITH_KERNELS
struct MinimumOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(minimum)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(minimum_outf)(a, b, out);
  }
};
struct MaximumOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(maximum)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(maximum_outf)(a, b, out);
  }
};
void clamp_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ClampAttrs>();
  std::optional<at::Scalar> bounds[2];
  if (attributes.has_min) bounds[0] = number_of(context, 0, attributes.number);
  if (attributes.has_max) bounds[1] = number_of(context, 1, attributes.number);
  set_output(context, 0, DTORCH_ATEN(clamp)(input(context, 0), bounds[0], bounds[1]));
}
#endif

std::vector<Sample> minimum_samples() { return binary_samples(minimum); }
std::vector<Sample> maximum_samples() { return binary_samples(maximum); }
std::vector<Sample> clamp_samples() {
  return {{.name = "both bounds",
           .inputs = {normal({5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{clamp(in[0], -0.5, 0.25)}; }},
          {.name = "integers, one bound, size 1",
           .inputs = {integers({1, 4})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{clamp(in[0], 2, {})}; }},
          {.name = "empty", .inputs = {normal({0, 4}, kFloat64)}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{clamp(in[0], {}, 0.5)};
           }}};
}

}  // namespace

constinit OperatorDef minimum_op = {
    .name = "minimum",
    .signature = "minimum(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary,
    .rule = bound_rule<kMin>,
    .kernel = DTORCH_KERNEL(binary_kernel<MinimumOp>),
    .prepare = DTORCH_KERNEL(prepare_binary<loop_of<at::native::minimum_stub>>),
    .gradient = bound_gradient<false>,
    .samples = minimum_samples,
    .elementwise = true,
};
constinit OperatorDef maximum_op = {
    .name = "maximum",
    .signature = "maximum(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary,
    .rule = bound_rule<kMax>,
    .kernel = DTORCH_KERNEL(binary_kernel<MaximumOp>),
    .prepare = DTORCH_KERNEL(prepare_binary<loop_of<at::native::maximum_stub>>),
    .gradient = bound_gradient<true>,
    .samples = maximum_samples,
    .elementwise = true,
};
constinit OperatorDef clamp_op = {
    .name = "clamp",
    .signature = "clamp(x, min, max) -> Tensor",
    .attributes = attribute_codec<ClampAttrs>(),
    .infer = clamp_infer,
    .rule = monotone_rule<Monotone::kUp>,
    .kernel = DTORCH_KERNEL(clamp_kernel),
    .gradient = clamp_gradient,
    .samples = clamp_samples,
    .saved_inputs = 1,
};

Tensor minimum(const Tensor& a, const Tensor& b, Where where) { return record_binary(minimum_op, a, b, where); }
Tensor maximum(const Tensor& a, const Tensor& b, Where where) { return record_binary(maximum_op, a, b, where); }
Tensor clamp(const Tensor& x, std::optional<double> min, std::optional<double> max, Where where) {
  if (!min && !max) throw at_line(UserError("[clamp] neither min nor max is given"), where);
  const auto whole = [](std::optional<double> bound) { return !bound || is_whole(*bound); };
  ClampAttrs attributes{min.has_value(), max.has_value(), kFloating};
  if (!is_floating(x.dtype()) && whole(min) && whole(max)) attributes.number = kInteger;
  const auto scalar_of = [&](std::optional<double> bound) {
    const double value = bound.value_or(0);
    return attributes.number == kInteger ? Scalar::of_int(static_cast<int64_t>(value)) : Scalar::of(value);
  };
  const Scalar scalars[] = {scalar_of(min), scalar_of(max)};
  return record(clamp_op, attributes, {&x}, where, {.scalars = scalars});
}
Tensor Tensor::clamp(std::optional<double> min, std::optional<double> max, Where where) const {
  return dtorch::clamp(*this, min, max, where);
}

}  // namespace dtorch
