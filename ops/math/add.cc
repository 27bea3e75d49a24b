// a + b and a - b, elementwise with broadcasting; one operand may be a number. Layouts: same on every dim; Partial +
// Partial is Partial (sum and avg); Partial(avg, max, min) with a Replicate operand or a number stays so. Gradients: g,
// and g or -g, summed over broadcast dims.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/memory_loop.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/BinaryOps.h>
#include <ATen/ops/add.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

// Adding or subtracting what all parts share commutes with mean, maximum and minimum of the parts, not with their sum.
// Subtracting the parts turns maximum into minimum.
template <bool kSubtract>
Rule add_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const auto& attributes = context.attributes<BinaryAttrs>();
  const bool two = attributes.number == kNoNumber;
  Rule rule = elementwise(context, outputs, two ? Linear::kInAll : Linear::kNo);
  for (ReduceOp kind : {kAvg, kMax, kMin}) {
    const ReduceOp swapped = kind == kMax ? kMin : kind == kMin ? kMax : kind;
    if (!two) {
      rule.rows.push_back({{Partial(kind)}, {Partial(attributes.reversed ? swapped : kind)}});
      continue;
    }
    rule.rows.push_back({{Partial(kind), Replicate()}, {Partial(kind)}});
    rule.rows.push_back({{Replicate(), Partial(kind)}, {Partial(kSubtract ? swapped : kind)}});
  }
  return rule;
}

std::vector<OutputMeta> sub_infer(const InferContext& context) {
  refuse_bool(context);
  return infer_binary(context);
}

std::vector<Tensor> add_gradient(const GradientContext& context) {
  std::vector<Tensor> gradients(context.num_inputs());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (context.needs_grad(i)) gradients[i] = fit_gradient(context.grad_output(0), context.input_meta(i));
  }
  return gradients;
}

std::vector<Tensor> sub_gradient(const GradientContext& context) {
  std::vector<Tensor> gradients(context.num_inputs());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!context.needs_grad(i)) continue;
    const bool subtracted = i == 1 || context.attributes<BinaryAttrs>().reversed;
    gradients[i] = fit_gradient(context.grad_output(0), context.input_meta(i));
    if (subtracted) gradients[i] = neg(gradients[i]);
  }
  return gradients;
}

#if DTORCH_WITH_KERNELS
struct AddOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(add)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(add_outf)(a, b, 1, out);
  }
};
struct SubOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(sub)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(sub_outf)(a, b, 1, out);
  }
};
// As LibTorch does both.
void add_loop(at::TensorIterator& iterator) { at::native::add_stub(at::kCPU, iterator, 1); }
void sub_loop(at::TensorIterator& iterator) { at::native::add_stub(at::kCPU, iterator, -1); }
#endif

std::vector<Sample> add_samples() {
  std::vector<Sample> samples = binary_samples(add);
  samples.push_back({.name = "number", .inputs = {integers({5, 3}, kInt32)}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{in[0] + 1.5, 2 + in[0]};
                     }});
  return samples;
}
std::vector<Sample> sub_samples() {
  std::vector<Sample> samples = binary_samples(sub);
  samples.push_back({.name = "number", .inputs = {normal({5, 1})}, .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{in[0] - 1.5, 2 - in[0]};
                     }});
  return samples;
}

}  // namespace

constinit OperatorDef add_op = {
    .name = "add",
    .signature = "add(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_binary,
    .rule = add_rule<false>,
    .kernel = DTORCH_KERNEL(binary_kernel<AddOp>),
    .prepare = DTORCH_KERNEL(prepare_small_binary<add_loop, Sum>),
    .gradient = add_gradient,
    .samples = add_samples,
    .linear_in = "all",
    .saved_inputs = 0,
    .elementwise = true,
};

constinit OperatorDef sub_op = {
    .name = "sub",
    .signature = "sub(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = sub_infer,
    .rule = add_rule<true>,
    .kernel = DTORCH_KERNEL(binary_kernel<SubOp>),
    .prepare = DTORCH_KERNEL(prepare_small_binary<sub_loop, Difference>),
    .gradient = sub_gradient,
    .samples = sub_samples,
    .linear_in = "all",
    .saved_inputs = 0,
    .elementwise = true,
};

Tensor add(const Tensor& a, const Tensor& b, Where where) { return record_binary(add_op, a, b, where); }
Tensor add(const Tensor& a, Number b, Where where) { return record_with_number(add_op, a, b, false, where); }
Tensor sub(const Tensor& a, const Tensor& b, Where where) { return record_binary(sub_op, a, b, where); }
Tensor sub(const Tensor& a, Number b, Where where) { return record_with_number(sub_op, a, b, false, where); }
Tensor sub(Number a, const Tensor& b, Where where) { return record_with_number(sub_op, b, a, true, where); }

}  // namespace dtorch
