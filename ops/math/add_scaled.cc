// a + alpha b, of add, sub and rsub with an alpha; elementwise with broadcasting, a may be a number. Layouts as those
// of add: Partial + Partial is Partial (sum and avg); Partial(avg, max, min) with a Replicate operand or a number stays
// so, max and min of b swapped when alpha is negative. scalars: alpha, and the number. Gradients: g, and g alpha.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/add.h>
#include <ATen/ops/add_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

struct ScaledAttrs {
  int64_t alpha = kInteger;    // kind of alpha
  bool negative = false;       // alpha < 0
  int64_t number = kNoNumber;  // kind of a, where that is a number
  template <class V>
  void fields(V& v) {
    v("alpha", alpha);
    v("negative", negative);
    v("number", number);
  }
};

std::vector<OutputMeta> scaled_infer(const InferContext& context) {
  const auto& attributes = context.attributes<ScaledAttrs>();
  const DType dtype = result_dtype(context.inputs, attributes.number);
  if (!is_floating(dtype) && attributes.alpha == kFloating) {
    throw DTypeError(std::string("[") + context.op + "] alpha is floating, the result is " + name_of(dtype) +
                     "; alpha must be an integer");
  }
  return {{broadcast_inputs(context), dtype}};
}

Rule scaled_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const auto& attributes = context.attributes<ScaledAttrs>();
  const bool two = attributes.number == kNoNumber;
  const size_t scaled = two ? 1 : 0;
  Rule rule = elementwise(context, outputs, two ? Linear::kInAll : Linear::kNo);
  for (ReduceOp kind : {kAvg, kMax, kMin}) {
    const ReduceOp swapped = kind == kMax ? kMin : kind == kMin ? kMax : kind;
    if (two) add_partial_row(&rule, {0}, kind, kind);
    add_partial_row(&rule, {scaled}, kind, attributes.negative ? swapped : kind);
  }
  return rule;
}

std::vector<Tensor> scaled_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Scalar& scalar = context.scalar(0);
  const bool floating = context.attributes<ScaledAttrs>().alpha == kFloating;
  const Number alpha = floating ? Number(scalar.as_double()) : Number(scalar.as_int());
  std::vector<Tensor> gradients(context.num_inputs());
  const size_t scaled = gradients.size() - 1;
  if (scaled == 1 && context.needs_grad(0)) gradients[0] = fit_gradient(g, context.input_meta(0));
  if (context.needs_grad(scaled)) gradients[scaled] = mul(fit_gradient(g, context.input_meta(scaled)), alpha);
  return gradients;
}

#if DTORCH_WITH_KERNELS
void scaled_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ScaledAttrs>();
  const at::Scalar alpha = number_of(context, 0, attributes.alpha);
  const bool two = attributes.number == kNoNumber;
  const at::Tensor a =
      two ? input(context, 0) : at::native::wrapped_scalar_tensor(number_of(context, 1, attributes.number));
  const at::Tensor& b = input(context, two ? 1 : 0);
  if (!can_overwrite(context, 0)) return set_output(context, 0, DTORCH_ATEN(add)(a, b, alpha));
  at::Tensor out = input(context, 0);
  DTORCH_ATEN(add_outf)(a, b, alpha, out);
  context.output(0) = context.input(0);
}
#endif

std::vector<Sample> scaled_samples() {
  const auto tensors = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{add(in[0], in[1], -0.5), sub(in[0], in[1], 2), rsub(in[0], in[1])};
  };
  return {
      {.name = "uneven",
       .inputs = {normal({5, 3}), normal({5, 3})},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{add(in[0], in[1], 2.5)}; }},
      {.name = "broadcast, size 1", .inputs = {normal({1, 3}, kFloat64), normal({4, 1}, kFloat64)}, .call = tensors},
      {.name = "integers",
       .inputs = {integers({7}), integers({7}, kInt32)},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{add(in[0], in[1], -3)}; }},
      {.name = "number, empty", .inputs = {normal({0, 3})}, .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{rsub(in[0], 1.5, 2)};
       }}};
}
std::vector<Sample> rsub_samples() {
  return {{.name = "uneven",
           .inputs = {normal({5, 3}), normal({3}, kFloat64)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{rsub(in[0], in[1])}; },
           .tolerance = 1e-5},
          {.name = "numbers, size 1", .inputs = {normal({1, 4}, kFloat64)}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{rsub(in[0], 1), rsub(in[0], 1.5, -2)};
           }}};
}

}  // namespace

constinit OperatorDef add_scaled_op = {
    .name = "add_scaled",
    .signature = "add(a, b, alpha) -> Tensor",
    .attributes = attribute_codec<ScaledAttrs>(),
    .infer = scaled_infer,
    .rule = scaled_rule,
    .kernel = DTORCH_KERNEL(scaled_kernel),
    .gradient = scaled_gradient,
    .samples = scaled_samples,
    .linear_in = "all",
    .saved_inputs = 0,
};
// A composition.
constinit OperatorDef rsub_op = {
    .name = "rsub",
    .signature = "rsub(x, other, alpha) -> Tensor",
    .samples = rsub_samples,
    .linear_in = "all",
};

namespace {

Number negated(const Number& number) { return number.is_floating ? Number(-number.floating) : Number(-number.integer); }

Tensor add_scaled(const Tensor& a, const Tensor& b, const Number& alpha, const Where& where) {
  const Scalar scalar = alpha.scalar();
  return record(add_scaled_op, ScaledAttrs{kind_of(alpha), alpha.floating < 0, kNoNumber}, {&a, &b}, where,
                {.scalars = {&scalar, 1}});
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Number alpha, Where where) { return add_scaled(a, b, alpha, where); }
Tensor sub(const Tensor& a, const Tensor& b, Number alpha, Where where) {
  return add_scaled(a, b, negated(alpha), where);
}
Tensor rsub(const Tensor& x, const Tensor& other, Number alpha, Where where) {
  return add_scaled(other, x, negated(alpha), where);
}
Tensor rsub(const Tensor& x, Number other, Number alpha, Where where) {
  const Number scale = negated(alpha);
  const Scalar scalars[] = {scale.scalar(), other.scalar()};
  return record(add_scaled_op, ScaledAttrs{kind_of(scale), scale.floating < 0, kind_of(other)}, {&x}, where,
                {.scalars = scalars});
}

}  // namespace dtorch
