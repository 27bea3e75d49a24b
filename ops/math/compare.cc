// eq, ne, lt, le, gt, ge and logical_and, or, not: bool, elementwise with broadcasting; the second operand of a
// comparison may be a number. Layouts: same on every dim; nothing Partial (a bool isn't kept pending). No gradients.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/BinaryOps.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/eq_cpu_dispatch.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/ge_cpu_dispatch.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/gt_cpu_dispatch.h>
#include <ATen/ops/le.h>
#include <ATen/ops/le_cpu_dispatch.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_and_native.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logical_not_native.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_or_native.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/lt_cpu_dispatch.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/ne_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;

#if DTORCH_WITH_KERNELS
template <auto kRun>
void comparison_kernel(KernelContext& context) {
  const int64_t number = context.attributes<BinaryAttrs>().number;
  set_output(context, 0,
             number == kNoNumber
                 ? kRun(input(context, 0), input(context, 1))
                 : kRun(input(context, 0), at::native::wrapped_scalar_tensor(number_of(context, 0, number))));
}
void logical_not_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_BY_DEVICE(at::native::logical_not, at::logical_not)(input(context, 0)));
}
#endif

// Integers that meet each other, so that equality isn't vacuous.
template <Tensor (*kTensors)(const Tensor&, const Tensor&, Where), Tensor (*kNumber)(const Tensor&, Number, Where)>
std::vector<Sample> comparison_samples() {
  const SampleInput small{{5, 3}, kInt64, SampleFill::kIndices, 3, false};
  const auto tensors = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{kTensors(in[0], in[1], Where::current())};
  };
  return {
      {.name = "uneven", .inputs = {small, small}, .call = tensors},
      {.name = "broadcast, mixed dtypes", .inputs = {small, {{1, 3}, kFloat32, SampleFill::kNormal}}, .call = tensors},
      {.name = "number",
       .inputs = {small},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{kNumber(in[0], 1, Where::current()), kNumber(in[0], 0.5, Where::current())};
           }},
      {.name = "empty", .inputs = {normal({0, 3}), normal({3})}, .call = tensors}};
}
template <Tensor (*kFunction)(const Tensor&, const Tensor&, Where)>
std::vector<Sample> logical_samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{kFunction(in[0], in[1], Where::current())};
  };
  return {{.name = "uneven",
           .inputs = {{{5, 3}, kBool, SampleFill::kBool}, {{5, 3}, kBool, SampleFill::kBool}},
           .call = call},
          {.name = "broadcast", .inputs = {{{4, 1}, kBool, SampleFill::kBool}, integers({3})}, .call = call}};
}
std::vector<Sample> logical_not_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{logical_not(in[0])}; };
  return {{.name = "uneven", .inputs = {{{5, 3}, kBool, SampleFill::kBool}}, .call = call},
          {.name = "size 1", .inputs = {integers({1, 3})}, .call = call}};
}

}  // namespace

constinit OperatorDef eq_op = {
    .name = "eq",
    .signature = "eq(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(comparison_kernel<DTORCH_ATEN(eq)>),
    .prepare = DTORCH_KERNEL(prepare_comparison<loop_of<at::native::eq_stub>>),
    .samples = comparison_samples<eq, eq>,
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef ne_op = {
    .name = "ne",
    .signature = "ne(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(comparison_kernel<DTORCH_ATEN(ne)>),
    .prepare = DTORCH_KERNEL(prepare_comparison<loop_of<at::native::ne_stub>>),
    .samples = comparison_samples<ne, ne>,
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef lt_op = {
    .name = "lt",
    .signature = "lt(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(comparison_kernel<DTORCH_ATEN(lt)>),
    .prepare = DTORCH_KERNEL(prepare_comparison<loop_of<at::native::lt_stub>>),
    .samples = comparison_samples<lt, lt>,
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef le_op = {
    .name = "le",
    .signature = "le(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(comparison_kernel<DTORCH_ATEN(le)>),
    .prepare = DTORCH_KERNEL(prepare_comparison<loop_of<at::native::le_stub>>),
    .samples = comparison_samples<le, le>,
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef gt_op = {
    .name = "gt",
    .signature = "gt(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(comparison_kernel<DTORCH_ATEN(gt)>),
    .prepare = DTORCH_KERNEL(prepare_comparison<loop_of<at::native::gt_stub>>),
    .samples = comparison_samples<gt, gt>,
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef ge_op = {
    .name = "ge",
    .signature = "ge(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(comparison_kernel<DTORCH_ATEN(ge)>),
    .prepare = DTORCH_KERNEL(prepare_comparison<loop_of<at::native::ge_stub>>),
    .samples = comparison_samples<ge, ge>,
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef logical_and_op = {
    .name = "logical_and",
    .signature = "logical_and(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(comparison_kernel<DTORCH_BY_DEVICE(at::native::logical_and, at::logical_and)>),
    .prepare = DTORCH_KERNEL(prepare_comparison<loop_of<at::native::logical_and_stub>>),
    .samples = logical_samples<logical_and>,
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef logical_or_op = {
    .name = "logical_or",
    .signature = "logical_or(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(comparison_kernel<DTORCH_BY_DEVICE(at::native::logical_or, at::logical_or)>),
    .prepare = DTORCH_KERNEL(prepare_comparison<loop_of<at::native::logical_or_stub>>),
    .samples = logical_samples<logical_or>,
    .saved_inputs = 0,
    .elementwise = true,
};
constinit OperatorDef logical_not_op = {
    .name = "logical_not",
    .signature = "logical_not(x) -> Tensor",
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(logical_not_kernel),
    .prepare = DTORCH_KERNEL(prepare_copy<loop_of<at::native::logical_not_stub>>),
    .samples = logical_not_samples,
    .saved_inputs = 0,
    .elementwise = true,
};

Tensor eq(const Tensor& a, const Tensor& b, Where where) { return record_binary(eq_op, a, b, where); }
Tensor eq(const Tensor& a, Number b, Where where) { return record_with_number(eq_op, a, b, false, where); }
Tensor ne(const Tensor& a, const Tensor& b, Where where) { return record_binary(ne_op, a, b, where); }
Tensor ne(const Tensor& a, Number b, Where where) { return record_with_number(ne_op, a, b, false, where); }
Tensor lt(const Tensor& a, const Tensor& b, Where where) { return record_binary(lt_op, a, b, where); }
Tensor lt(const Tensor& a, Number b, Where where) { return record_with_number(lt_op, a, b, false, where); }
Tensor le(const Tensor& a, const Tensor& b, Where where) { return record_binary(le_op, a, b, where); }
Tensor le(const Tensor& a, Number b, Where where) { return record_with_number(le_op, a, b, false, where); }
Tensor gt(const Tensor& a, const Tensor& b, Where where) { return record_binary(gt_op, a, b, where); }
Tensor gt(const Tensor& a, Number b, Where where) { return record_with_number(gt_op, a, b, false, where); }
Tensor ge(const Tensor& a, const Tensor& b, Where where) { return record_binary(ge_op, a, b, where); }
Tensor ge(const Tensor& a, Number b, Where where) { return record_with_number(ge_op, a, b, false, where); }
Tensor logical_and(const Tensor& a, const Tensor& b, Where where) { return record_binary(logical_and_op, a, b, where); }
Tensor logical_or(const Tensor& a, const Tensor& b, Where where) { return record_binary(logical_or_op, a, b, where); }
Tensor logical_not(const Tensor& x, Where where) { return record(logical_not_op, NoAttrs{}, {&x}, where); }

}  // namespace dtorch
