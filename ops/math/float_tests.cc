// trunc, frac, sgn; isnan, isinf, isfinite; isclose, allclose; nan_to_num. Layouts: same on every dim; trunc and sgn
// are non-decreasing, so that Partial(max) and Partial(min) pass; nothing else Partial does: NaN and infinities of
// parts aren't those of the value; integers pass trunc and nan_to_num as they are, so pending too. Gradients: 0 of
// trunc and sgn, g of frac, g where x is finite of nan_to_num.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/frac.h>
#include <ATen/ops/frac_cpu_dispatch.h>
#include <ATen/ops/isclose_native.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isfinite_native.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isinf_native.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/nan_to_num_native.h>
#include <ATen/ops/trunc.h>
#include <ATen/ops/trunc_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

struct CloseAttrs {
  double rtol = 0, atol = 0;
  bool equal_nan = false;
  template <class V>
  void fields(V& v) {
    v("rtol", rtol);
    v("atol", atol);
    v("equal_nan", equal_nan);
  }
};

struct NanAttrs {
  double nan = 0;
  bool has_posinf = false, has_neginf = false;
  double posinf = 0, neginf = 0;
  template <class V>
  void fields(V& v) {
    v("nan", nan);
    v("has_posinf", has_posinf);
    v("has_neginf", has_neginf);
    v("posinf", posinf);
    v("neginf", neginf);
  }
};

std::vector<OutputMeta> close_infer(const InferContext& context) {
  need_one_dtype(context);
  return infer_comparison(context);
}

// trunc and nan_to_num leave integers as they are.
Rule integers_pass(const InferContext& context, std::span<const OutputMeta> outputs) {
  return monotone_rule<Monotone::kUp, Linear::kInAll>(context, outputs);
}
Rule trunc_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  if (is_integral(context.dtype(0))) return integers_pass(context, outputs);
  return monotone_rule<Monotone::kUp>(context, outputs);
}
Rule nan_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  if (is_integral(context.dtype(0))) return integers_pass(context, outputs);
  return elementwise(context, outputs, Linear::kNo);
}

std::vector<Tensor> frac_gradient(const GradientContext& context) { return {context.grad_output(0)}; }
std::vector<Tensor> nan_gradient(const GradientContext& context) {
  return {where(isfinite(context.input(0)), context.grad_output(0), 0)};
}

#if DTORCH_WITH_KERNELS
template <auto kRun>
void test_kernel(KernelContext& context) {
  set_output(context, 0, kRun(input(context, 0)));
}
// Expanded first: with equal_nan LibTorch writes in place into a test of the first operand.
void close_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<CloseAttrs>();
  const at::IntArrayRef sizes = output_sizes(context, 0);
  set_output(context, 0,
             at::native::isclose(input(context, 0).expand(sizes), input(context, 1).expand(sizes), attributes.rtol,
                                 attributes.atol, attributes.equal_nan));
}
void nan_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<NanAttrs>();
  std::optional<double> posinf, neginf;
  if (attributes.has_posinf) posinf = attributes.posinf;
  if (attributes.has_neginf) neginf = attributes.neginf;
  set_output(
      context, 0,
      DTORCH_BY_DEVICE(at::native::nan_to_num, at::nan_to_num)(input(context, 0), attributes.nan, posinf, neginf));
}
#endif

// NaN where x < 0, infinite where x is 0.
Tensor with_specials(const Tensor& x) { return log(x); }

std::vector<Sample> trunc_samples() {
  std::vector<Sample> samples = unary_samples(trunc);
  samples.push_back({.name = "integers", .inputs = {integers({5, 1})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{trunc(in[0])};
                     }});
  return samples;
}
std::vector<Sample> frac_samples() { return unary_samples(frac); }
std::vector<Sample> sgn_samples() { return unary_samples(sgn); }
template <Tensor (*kFunction)(const Tensor&, Where)>
std::vector<Sample> test_samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{kFunction(with_specials(in[0]), Where::current())};
  };
  return {{.name = "uneven", .inputs = {{{5, 3}, kFloat32, SampleFill::kNormal, 0, false}}, .call = call},
          {.name = "integers, size 1",
           .inputs = {integers({7, 1})},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{kFunction(in[0], Where::current()),
                                            kFunction(with_specials(in[0]), Where::current())};
               }},
          {.name = "empty", .inputs = {{{0, 2}, kFloat64, SampleFill::kNormal, 0, false}}, .call = call}};
}
std::vector<Sample> close_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{isclose(in[0], in[1], 0.3, 0.1)}; };
  return {{.name = "uneven", .inputs = {normal({5, 3}), normal({5, 3})}, .call = call},
          {.name = "broadcast, equal_nan",
           .inputs = {normal({5, 1}, kFloat64), normal({3}, kFloat64)},
           .call =
               [](const std::vector<Tensor>& in) {
                 const Tensor a = log(in[0]);
                 return std::vector<Tensor>{isclose(a, add(a, mul(in[1], 0.0)), 1e-5, 1e-8, true)};
               }},
          {.name = "integers, empty", .inputs = {integers({0, 3}), integers({3})}, .call = call}};
}
std::vector<Sample> allclose_samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    const bool close = allclose(in[0], in[1], 0.5, 10);
    const bool equal = allclose(in[0], in[1]);
    const TensorOptions options{.mesh = in[0].mesh(), .dtype = kBool};
    return std::vector<Tensor>{full({}, close, options), full({}, equal, options)};
  };
  return {{.name = "uneven", .inputs = {normal({5, 3}), normal({5, 3})}, .call = call},
          {.name = "empty", .inputs = {normal({0, 3}, kFloat64), normal({1, 3}, kFloat64)}, .call = call}};
}
std::vector<Sample> nan_samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{nan_to_num(in[0]), nan_to_num(with_specials(in[0].detach()), 0.5, 7, -9)};
  };
  return {{.name = "uneven", .inputs = {normal({5, 3})}, .call = call},
          {.name = "float64, size 1", .inputs = {normal({1, 4}, kFloat64)}, .call = call},
          {.name = "integers", .inputs = {integers({7})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{nan_to_num(in[0]), nan_to_num(with_specials(in[0]), 0.5, 7, -9)};
           }}};
}

}  // namespace

constinit OperatorDef trunc_op = {
    .name = "trunc",
    .signature = "trunc(x) -> Tensor",
    .infer = infer_same,
    .rule = trunc_rule,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(trunc), DTORCH_ATEN(trunc_outf)>),
    .gradient = zero_gradient,
    .samples = trunc_samples,
    .saved_inputs = 0,
};
constinit OperatorDef frac_op = {
    .name = "frac",
    .signature = "frac(x) -> Tensor",
    .infer = infer_needs_floating,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(frac), DTORCH_ATEN(frac_outf)>),
    .gradient = frac_gradient,
    .samples = frac_samples,
    .saved_inputs = 0,
};
// A composition.
constinit OperatorDef sgn_op = {.name = "sgn", .signature = "sgn(x) -> Tensor", .samples = sgn_samples};

constinit OperatorDef isnan_op = {
    .name = "isnan",
    .signature = "isnan(x) -> Tensor",
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(test_kernel<DTORCH_BY_DEVICE(at::native::isnan, at::isnan)>),
    .samples = test_samples<isnan>,
    .saved_inputs = 0,
};
constinit OperatorDef isinf_op = {
    .name = "isinf",
    .signature = "isinf(x) -> Tensor",
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(test_kernel<DTORCH_BY_DEVICE(at::native::isinf, at::isinf)>),
    .samples = test_samples<isinf>,
    .saved_inputs = 0,
};
constinit OperatorDef isfinite_op = {
    .name = "isfinite",
    .signature = "isfinite(x) -> Tensor",
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(test_kernel<DTORCH_BY_DEVICE(at::native::isfinite, at::isfinite)>),
    .samples = test_samples<isfinite>,
    .saved_inputs = 0,
};
constinit OperatorDef isclose_op = {
    .name = "isclose",
    .signature = "isclose(a, b, rtol, atol, equal_nan) -> Tensor",
    .attributes = attribute_codec<CloseAttrs>(),
    .infer = close_infer,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(close_kernel),
    .samples = close_samples,
    .saved_inputs = 0,
};
// A composition.
constinit OperatorDef allclose_op = {
    .name = "allclose",
    .signature = "allclose(a, b, rtol, atol, equal_nan) -> bool",
    .samples = allclose_samples,
};
constinit OperatorDef nan_to_num_op = {
    .name = "nan_to_num",
    .signature = "nan_to_num(x, nan, posinf, neginf) -> Tensor",
    .attributes = attribute_codec<NanAttrs>(),
    .infer = infer_same,
    .rule = nan_rule,
    .kernel = DTORCH_KERNEL(nan_kernel),
    .gradient = nan_gradient,
    .samples = nan_samples,
};

Tensor trunc(const Tensor& x, Where where) { return record(trunc_op, NoAttrs{}, {&x}, where); }
Tensor frac(const Tensor& x, Where where) { return record(frac_op, NoAttrs{}, {&x}, where); }
Tensor sgn(const Tensor& x, Where where) { return sign(x, where); }
Tensor isnan(const Tensor& x, Where where) { return record(isnan_op, NoAttrs{}, {&x}, where); }
Tensor isinf(const Tensor& x, Where where) { return record(isinf_op, NoAttrs{}, {&x}, where); }
Tensor isfinite(const Tensor& x, Where where) { return record(isfinite_op, NoAttrs{}, {&x}, where); }
Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Where where) {
  if (!(rtol >= 0 && atol >= 0)) {
    throw at_line(UserError("[isclose] rtol is " + std::to_string(rtol) + " and atol " + std::to_string(atol) +
                            ", neither may be negative"),
                  where);
  }
  return record(isclose_op, CloseAttrs{rtol, atol, equal_nan}, {&a, &b}, where);
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan, Where where) {
  const Tensor differs = logical_not(isclose(a, b, rtol, atol, equal_nan, where), where);
  return sum(differs, where).item<int64_t>(where) == 0;
}
Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf,
                  Where where) {
  const NanAttrs attributes{nan, posinf.has_value(), neginf.has_value(), posinf.value_or(0), neginf.value_or(0)};
  return record(nan_to_num_op, attributes, {&x}, where);
}

}  // namespace dtorch
