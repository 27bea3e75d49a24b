// where(condition, a, b): a or b may be a number. masked_fill(x, mask, value) is where with x as b; it keeps x's dtype.
// Layouts: same on every dim; with Replicate conditions the parts of Partial operands are chosen part by part (a number
// then must be 0 for sum). scalars: the number. Gradients: where(condition, g, 0) and where(condition, 0, g), summed
// over broadcast dims.
#include "ops/create/aten_call.h"
#include "ops/math/elementwise.h"
#include "ops/math/kernels.h"
#include "ops/math/where_attrs.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/where_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

std::vector<OutputMeta> where_infer(const InferContext& context) {
  if (context.dtype(0) != kBool) {
    throw DTypeError(std::string("[where] the condition is ") + name_of(context.dtype(0)) +
                     ", must be bool; compare it with != 0");
  }
  const int64_t number = context.attributes<WhereAttrs>().number;
  return {{broadcast_inputs(context), result_dtype(context.inputs.subspan(1), number)}};
}

Rule where_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const auto& attributes = context.attributes<WhereAttrs>();
  Rule rule = elementwise(context, outputs, Linear::kNo);
  for (ReduceOp kind : {kSum, kAvg, kMax, kMin}) {
    if (kind == kSum && attributes.number != kNoNumber && !attributes.number_is_zero) continue;
    Row row{std::vector<Placement>(context.inputs.size(), Partial(kind)), {Partial(kind)}};
    row.inputs[0] = Replicate();
    rule.rows.push_back(row);
    // Choosing between a part and a value that all parts share commutes with all reductions but sum.
    for (size_t i = 1; kind != kSum && attributes.number == kNoNumber && i < 3; ++i) {
      Row one = row;
      one.inputs[i] = Replicate();
      rule.rows.push_back(one);
    }
  }
  return rule;
}

std::vector<Tensor> where_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<WhereAttrs>();
  const Tensor& g = context.grad_output(0);
  const Tensor condition = context.input(0);
  std::vector<Tensor> gradients(context.num_inputs());
  for (size_t i = 1; i < gradients.size(); ++i) {
    if (!context.needs_grad(i)) continue;
    const bool is_a = i == 1 && !attributes.number_first;
    gradients[i] = fit_gradient(is_a ? where(condition, g, 0) : where(condition, 0, g), context.input_meta(i));
  }
  return gradients;
}

#if DTORCH_WITH_KERNELS
void where_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<WhereAttrs>();
  at::Tensor number;
  const at::Tensor* a = &input(context, 1);
  const at::Tensor* b = a;
  if (attributes.number == kNoNumber) {
    b = &input(context, 2);
  } else {
    number = at::scalar_tensor(number_of(context, 0, attributes.number),
                               a->options().dtype(scalar_type(context.output_meta(0).dtype)));
    (attributes.number_first ? a : b) = &number;
  }
  set_output(context, 0, DTORCH_ATEN(where)(input(context, 0), *a, *b));
}
std::unique_ptr<PreparedKernel> prepare_where(const LocalOperator& local) {
  const auto& attributes = *static_cast<const WhereAttrs*>(local.attributes.get());
  std::vector<int> operands = {0, 1, 2};
  if (attributes.number != kNoNumber) operands[attributes.number_first ? 1 : 2] = ElementwiseKernel::kNumber;
  if (attributes.number != kNoNumber && attributes.number_first) operands[2] = 1;
  return prepare_operands(local, loop_of<at::native::where_kernel>, IteratorKind::kSelect, false, operands,
                          local.spec->inputs[1]->dtype, attributes.number);
}
#endif

std::vector<Sample> where_samples() {
  const SampleInput condition{{5, 3}, kBool, SampleFill::kBool};
  return {{.name = "two tensors, broadcast",
           .inputs = {condition, normal({5, 3}), normal({3}, kFloat64)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{where(in[0], in[1], in[2])}; },
           .tolerance = 1e-5},
          {.name = "numbers",
           .inputs = {condition, normal({5, 1})},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{where(in[0], in[1], 0.0), where(in[0], 2.5, in[1])};
               }},
          {.name = "empty",
           .inputs = {{{0, 3}, kBool, SampleFill::kBool}, normal({0, 3}), normal({0, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{where(in[0], in[1], in[2])}; }}};
}

std::vector<Sample> masked_fill_samples() {
  const SampleInput mask{{5, 3}, kBool, SampleFill::kBool};
  const auto zero = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{masked_fill(in[0], in[1], 0)}; };
  return {{.name = "number",
           .inputs = {normal({5, 3}, kFloat64), mask},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{masked_fill(in[0], in[1], -1e9)}; }},
          {.name = "zero, mask of one column",
           .inputs = {normal({5, 3}), {{5, 1}, kBool, SampleFill::kBool}},
           .call = zero},
          {.name = "bool, empty",
           .inputs = {{{0, 3}, kBool, SampleFill::kBool}, {{3}, kBool, SampleFill::kBool}},
           .call = zero},
          {.name = "tensor", .inputs = {normal({5, 3}), mask, normal({})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{masked_fill(in[0], in[1], in[2])};
           }}};
}

}  // namespace

constinit OperatorDef where_op = {
    .name = "where",
    .signature = "where(condition, a, b) -> Tensor",
    .attributes = attribute_codec<WhereAttrs>(),
    .infer = where_infer,
    .rule = where_rule,
    .kernel = DTORCH_KERNEL(where_kernel),
    .prepare = DTORCH_KERNEL(prepare_where),
    .gradient = where_gradient,
    .samples = where_samples,
    .linear_in = "a and b",
    .saved_inputs = 1,
    .elementwise = true,
};
// A composition.
constinit OperatorDef masked_fill_op = {
    .name = "masked_fill",
    .signature = "masked_fill(x, mask, value) -> Tensor",
    .samples = masked_fill_samples,
    .linear_in = "x, when value is 0",
};

namespace {
Tensor where_with_number(const Tensor& condition, const Tensor& tensor, Number number, bool number_first,
                         const Where& where) {
  const Scalar scalar = number.scalar();
  const WhereAttrs attributes{kind_of(number), number_first, number.floating == 0};
  return record(where_op, attributes, {&condition, &tensor}, where, {.scalars = {&scalar, 1}});
}
}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, Where place) {
  return record(where_op, WhereAttrs{}, {&condition, &a, &b}, place);
}
Tensor where(const Tensor& condition, const Tensor& a, Number b, Where place) {
  return where_with_number(condition, a, b, false, place);
}
Tensor where(const Tensor& condition, Number a, const Tensor& b, Where place) {
  return where_with_number(condition, b, a, true, place);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value, Where place) {
  if (value.is_floating && x.dtype() == kBool) {
    value = value.floating != 0;
  } else if (value.is_floating && !is_floating(x.dtype())) {
    value = static_cast<int64_t>(value.floating);
  }
  // An integer number turns bool into int64.
  return to(where_with_number(mask, x, value, true, place), x.dtype(), place);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value, Where place) {
  if (value.ndim() != 0) {
    throw at_line(ShapeError("[masked_fill] value has the shape " + value.shape().str() + ", must have no dims"),
                  place);
  }
  return where(mask, to(value, x.dtype(), place), x, place);
}

}  // namespace dtorch
