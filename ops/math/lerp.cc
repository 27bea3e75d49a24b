// lerp(start, end, weight) = start + weight (end - start), addcmul(x, a, b, value) = x + value a b and addcdiv(x, a, b,
// value) = x + value a / b; elementwise with broadcasting; lerp_number: the weight is a number. Layouts: same on every
// dim. lerp is linear in start and end together; addcmul in x together with one factor, addcdiv in x together with a;
// so Partial(sum, avg) passes. A mean also commutes with adding what all parts share, and so do maximum and minimum of
// x's parts, and of one end's parts when the weight lies in [0, 1]. Gradients: g (1 - weight), g weight, g (end -
// start); g, g value b, g value a; g, g value / b, -g value a / b^2.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

struct LerpAttrs {
  bool inside = false;  // 0 <= weight <= 1
  template <class V>
  void fields(V& v) {
    v("inside", inside);
  }
};
// The kind of `value`, which is a Scalar of the call.
struct ValueAttrs {
  int64_t number = kInteger;
  template <class V>
  void fields(V& v) {
    v("number", number);
  }
};

std::vector<OutputMeta> lerp_infer(const InferContext& context) {
  need_one_dtype(context);
  infer_needs_floating(context);
  return {{broadcast_inputs(context), context.dtype(0)}};
}
std::vector<OutputMeta> addcmul_infer(const InferContext& context) {
  const DType dtype = result_dtype(context.inputs);
  const bool cuts = !is_floating(dtype) && context.attributes<ValueAttrs>().number == kFloating;
  if (dtype == kBool || cuts) {
    throw DTypeError(std::string("[addcmul] the result is ") + name_of(dtype) +
                     (cuts ? ", value must be an integer" : ", needs numbers; convert with to(kInt64)"));
  }
  return {{broadcast_inputs(context), dtype}};
}
std::vector<OutputMeta> addcdiv_infer(const InferContext& context) {
  if (!is_floating(context.dtype(1)) && !is_floating(context.dtype(2))) {
    throw DTypeError(std::string("[addcdiv] got ") + name_of(context.dtype(1)) + " by " + name_of(context.dtype(2)) +
                     ", one must be floating; convert with to(kFloat32)");
  }
  return {{broadcast_inputs(context), result_dtype(context.inputs)}};
}

Rule lerp_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, Linear::kNo);
  for (ReduceOp kind : {kSum, kAvg}) add_partial_row(&rule, {0, 1}, kind, kind);
  for (size_t i = 0; i < context.inputs.size(); ++i) add_partial_row(&rule, {i}, kAvg, kAvg);
  return rule;
}
Rule lerp_number_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = lerp_rule(context, outputs);
  for (ReduceOp kind : {kMax, kMin}) {
    if (!context.attributes<LerpAttrs>().inside) break;
    for (size_t i : {0, 1}) add_partial_row(&rule, {i}, kind, kind);
  }
  return rule;
}
template <bool kDivides>
Rule addc_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, Linear::kNo);
  for (ReduceOp kind : {kSum, kAvg}) {
    add_partial_row(&rule, {0, 1}, kind, kind);
    if (!kDivides) add_partial_row(&rule, {0, 2}, kind, kind);
  }
  for (size_t i = 0; i < (kDivides ? 2 : 3); ++i) add_partial_row(&rule, {i}, kAvg, kAvg);
  for (ReduceOp kind : {kMax, kMin}) add_partial_row(&rule, {0}, kind, kind);
  return rule;
}

std::vector<Tensor> lerp_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  std::vector<Tensor> gradients(3);
  const auto set = [&](size_t i, auto gradient) {
    if (context.needs_grad(i)) gradients[i] = fit_gradient(gradient(), context.input_meta(i));
  };
  set(0, [&] { return mul(g, sub(1, context.input(2))); });
  set(1, [&] { return mul(g, context.input(2)); });
  set(2, [&] { return mul(g, sub(context.input(1), context.input(0))); });
  return gradients;
}
std::vector<Tensor> lerp_number_gradient(const GradientContext& context) {
  const double weight = context.scalar(0).as_double();
  std::vector<Tensor> gradients(2);
  for (size_t i : {0, 1}) {
    if (!context.needs_grad(i)) continue;
    gradients[i] = fit_gradient(mul(context.grad_output(0), i == 0 ? 1 - weight : weight), context.input_meta(i));
  }
  return gradients;
}

Number value_of(const GradientContext& context) {
  const Scalar& scalar = context.scalar(0);
  return context.attributes<ValueAttrs>().number == kFloating ? Number(scalar.as_double()) : Number(scalar.as_int());
}
std::vector<Tensor> addcmul_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  std::vector<Tensor> gradients(3);
  if (context.needs_grad(0)) gradients[0] = fit_gradient(g, context.input_meta(0));
  for (size_t i : {1, 2}) {
    if (!context.needs_grad(i)) continue;
    gradients[i] = fit_gradient(mul(g, mul(context.input(3 - i), value_of(context))), context.input_meta(i));
  }
  return gradients;
}
std::vector<Tensor> addcdiv_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Number value = value_of(context);
  std::vector<Tensor> gradients(3);
  if (context.needs_grad(0)) gradients[0] = fit_gradient(g, context.input_meta(0));
  const Tensor b = context.input(2);
  if (context.needs_grad(1)) gradients[1] = fit_gradient(mul(g, div(value, b)), context.input_meta(1));
  if (context.needs_grad(2)) {
    const Tensor slope = div(mul(context.input(1), value), mul(b, b));
    gradients[2] = fit_gradient(mul(neg(g), slope), context.input_meta(2));
  }
  return gradients;
}

#if DTORCH_WITH_KERNELS
void lerp_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(lerp)(input(context, 0), input(context, 1), input(context, 2)));
}
void lerp_number_kernel(KernelContext& context) {
  const at::Scalar weight(context.scalar(0).as_double());
  if (!can_overwrite(context, 0)) {
    return set_output(context, 0, DTORCH_ATEN(lerp)(input(context, 0), input(context, 1), weight));
  }
  at::Tensor out = input(context, 0);
  DTORCH_ATEN(lerp_outf)(out, input(context, 1), weight, out);
  context.output(0) = context.input(0);
}
// Into x's own storage where it is handed over, as optimizer steps do.
template <auto kRun, auto kRunOut>
void addc_kernel(KernelContext& context) {
  const at::Scalar value = number_of(context, 0, context.attributes<ValueAttrs>().number);
  if (!can_overwrite(context, 0)) {
    return set_output(context, 0, kRun(input(context, 0), input(context, 1), input(context, 2), value));
  }
  at::Tensor out = input(context, 0);
  kRunOut(input(context, 0), input(context, 1), input(context, 2), value, out);
  context.output(0) = context.input(0);
}
#endif

std::vector<Sample> lerp_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{lerp(in[0], in[1], in[2])}; };
  return {{.name = "uneven", .inputs = {normal({5, 3}), normal({5, 3}), normal({5, 3})}, .call = call},
          {.name = "broadcast, size 1",
           .inputs = {normal({1, 3}, kFloat64), normal({4, 1}, kFloat64), {{4, 3}, kFloat64, SampleFill::kUnit}},
           .call = call},
          {.name = "empty", .inputs = {normal({0, 3}), normal({0, 3}), normal({})}, .call = call}};
}
std::vector<Sample> lerp_number_samples() {
  const auto call = [](double weight) {
    return [weight](const std::vector<Tensor>& in) { return std::vector<Tensor>{lerp(in[0], in[1], weight)}; };
  };
  return {
      {.name = "uneven", .inputs = {normal({5, 3}), normal({5, 3})}, .call = call(0.3)},
      {.name = "beyond, broadcast", .inputs = {normal({1, 3}, kFloat64), normal({4, 1}, kFloat64)}, .call = call(1.5)},
      {.name = "empty", .inputs = {normal({0, 3}), normal({3})}, .call = call(0.5)}};
}
std::vector<Sample> addcmul_samples() {
  const auto call = [](Number value) {
    return [value](const std::vector<Tensor>& in) { return std::vector<Tensor>{addcmul(in[0], in[1], in[2], value)}; };
  };
  return {{.name = "uneven", .inputs = {normal({5, 3}), normal({5, 3}), normal({5, 3})}, .call = call(0.5)},
          {.name = "broadcast, size 1",
           .inputs = {normal({1, 3}, kFloat64), normal({4, 1}, kFloat64), normal({3}, kFloat64)},
           .call = call(2)},
          {.name = "integers", .inputs = {integers({7}), integers({7}), integers({1})}, .call = call(-3)}};
}
std::vector<Sample> addcdiv_samples() {
  const auto call = [](Number value) {
    return [value](const std::vector<Tensor>& in) { return std::vector<Tensor>{addcdiv(in[0], in[1], in[2], value)}; };
  };
  return {{.name = "uneven", .inputs = {normal({5, 3}), normal({5, 3}), positive({5, 3})}, .call = call(0.5)},
          {.name = "broadcast, size 1",
           .inputs = {normal({1, 3}, kFloat64), normal({4, 1}, kFloat64), positive({3}, kFloat64)},
           .call = call(2)},
          {.name = "empty", .inputs = {normal({0, 3}), normal({3}), positive({1})}, .call = call(1)}};
}

}  // namespace

constinit OperatorDef lerp_op = {
    .name = "lerp",
    .signature = "lerp(start, end, weight) -> Tensor",
    .infer = lerp_infer,
    .rule = lerp_rule,
    .kernel = DTORCH_KERNEL(lerp_kernel),
    .gradient = lerp_gradient,
    .samples = lerp_samples,
    .linear_in = "start and end",
};
constinit OperatorDef lerp_number_op = {
    .name = "lerp_number",
    .signature = "lerp(start, end, number) -> Tensor",
    .attributes = attribute_codec<LerpAttrs>(),
    .infer = lerp_infer,
    .rule = lerp_number_rule,
    .kernel = DTORCH_KERNEL(lerp_number_kernel),
    .gradient = lerp_number_gradient,
    .samples = lerp_number_samples,
    .linear_in = "start and end",
    .saved_inputs = 0,
};
constinit OperatorDef addcmul_op = {
    .name = "addcmul",
    .signature = "addcmul(x, a, b, value) -> Tensor",
    .attributes = attribute_codec<ValueAttrs>(),
    .infer = addcmul_infer,
    .rule = addc_rule<false>,
    .kernel = DTORCH_KERNEL(addc_kernel<DTORCH_ATEN(addcmul), DTORCH_ATEN(addcmul_outf)>),
    .gradient = addcmul_gradient,
    .samples = addcmul_samples,
    .linear_in = "x and a, x and b",
    .saved_inputs = 6,
};
constinit OperatorDef addcdiv_op = {
    .name = "addcdiv",
    .signature = "addcdiv(x, a, b, value) -> Tensor",
    .attributes = attribute_codec<ValueAttrs>(),
    .infer = addcdiv_infer,
    .rule = addc_rule<true>,
    .kernel = DTORCH_KERNEL(addc_kernel<DTORCH_ATEN(addcdiv), DTORCH_ATEN(addcdiv_outf)>),
    .gradient = addcdiv_gradient,
    .samples = addcdiv_samples,
    .linear_in = "x and a",
    .saved_inputs = 6,
};

Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight, Where where) {
  return record(lerp_op, NoAttrs{}, {&start, &end, &weight}, where);
}
Tensor lerp(const Tensor& start, const Tensor& end, double weight, Where where) {
  const Scalar scalar = Scalar::of(weight);
  return record(lerp_number_op, LerpAttrs{weight >= 0 && weight <= 1}, {&start, &end}, where,
                {.scalars = {&scalar, 1}});
}
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Number value, Where where) {
  const Scalar scalar = value.scalar();
  return record(addcmul_op, ValueAttrs{kind_of(value)}, {&x, &a, &b}, where, {.scalars = {&scalar, 1}});
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Number value, Where where) {
  const Scalar scalar = value.scalar();
  return record(addcdiv_op, ValueAttrs{kind_of(value)}, {&x, &a, &b}, where, {.scalars = {&scalar, 1}});
}

}  // namespace dtorch
