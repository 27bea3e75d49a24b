// logical_xor, and bitwise_not, and, or, xor, left_shift, right_shift of integers and bool (shifts: integers only);
// elementwise with broadcasting; the second operand may be a number. Layouts: same on every dim. A left shift is a
// product with a power of two, so that Partial(sum) passes in the first operand; bitwise_not is -1 - x, and a right
// shift rounds a quotient down, so that Partial(max) and Partial(min) pass. No gradients.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/pointwise.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_and_cpu_dispatch.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_left_shift_cpu_dispatch.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_not_cpu_dispatch.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_or_cpu_dispatch.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_right_shift_cpu_dispatch.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/bitwise_xor_cpu_dispatch.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/logical_xor_native.h>
#endif

namespace dtorch {
namespace {

using namespace math;

void need_no_floating(const InferContext& context) {
  for (const TensorMeta* input : context.inputs) {
    if (!is_floating(input->dtype)) continue;
    throw DTypeError("[" + std::string(context.op) + "] got " + name_of(input->dtype) + ", needs integers or bool");
  }
}
std::vector<OutputMeta> bits_infer(const InferContext& context) {
  need_no_floating(context);
  return infer_binary(context);
}
std::vector<OutputMeta> not_infer(const InferContext& context) {
  need_no_floating(context);
  return infer_same(context);
}
std::vector<OutputMeta> shift_infer(const InferContext& context) {
  need_no_floating(context);
  return infer_binary_no_bool(context);
}

Rule not_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  if (context.dtype(0) == kBool) return elementwise(context, outputs, Linear::kNo);
  return monotone_rule<Monotone::kDown>(context, outputs);
}
// An input that is converted to a wider type wraps around before it is added up, so that its parts can't pass.
bool keeps_dtype(const InferContext& context, std::span<const OutputMeta> outputs) {
  return context.dtype(0) == outputs[0].dtype && !context.attributes<BinaryAttrs>().reversed;
}
Rule left_shift_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, Linear::kNo);
  if (keeps_dtype(context, outputs)) add_partial_row(&rule, {0}, kSum, kSum);
  return rule;
}
Rule right_shift_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = elementwise(context, outputs, Linear::kNo);
  if (!keeps_dtype(context, outputs)) return rule;
  for (ReduceOp kind : {kMax, kMin}) add_partial_row(&rule, {0}, kind, kind);
  return rule;
}

#if DTORCH_WITH_KERNELS
struct AndOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(bitwise_and)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(bitwise_and_outf)(a, b, out);
  }
};
struct OrOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(bitwise_or)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(bitwise_or_outf)(a, b, out);
  }
};
struct XorOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(bitwise_xor)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(bitwise_xor_outf)(a, b, out);
  }
};
struct LeftShiftOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(bitwise_left_shift)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(bitwise_left_shift_outf)(a, b, out);
  }
};
struct RightShiftOp {
  static at::Tensor run(const at::Tensor& a, const at::Tensor& b) { return DTORCH_ATEN(bitwise_right_shift)(a, b); }
  static void run_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
    DTORCH_ATEN(bitwise_right_shift_outf)(a, b, out);
  }
};
void logical_xor_kernel(KernelContext& context) {
  set_output(context, 0,
             DTORCH_BY_DEVICE(at::native::logical_xor, at::logical_xor)(input(context, 0), input(context, 1)));
}
#endif

SampleInput bools(Shape shape) { return {shape, kBool, SampleFill::kBool, 0, false}; }
SampleInput below(int64_t bound, Shape shape, DType dtype = kInt64) {
  return {shape, dtype, SampleFill::kIndices, bound, false};
}

std::vector<Sample> logical_xor_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{logical_xor(in[0], in[1])}; };
  return {{.name = "uneven", .inputs = {bools({5, 3}), bools({5, 3})}, .call = call},
          {.name = "broadcast, mixed dtypes", .inputs = {bools({4, 1}), integers({3})}, .call = call},
          {.name = "floats, empty", .inputs = {normal({0, 3}, kFloat64), normal({3}, kFloat64)}, .call = call}};
}
std::vector<Sample> not_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{bitwise_not(in[0])}; };
  return {{.name = "uneven", .inputs = {integers({5, 3})}, .call = call},
          {.name = "bool, size 1", .inputs = {bools({1, 4})}, .call = call},
          {.name = "uint8, empty", .inputs = {integers({0, 4}, kUInt8)}, .call = call}};
}
template <Tensor (*kTensors)(const Tensor&, const Tensor&, Where), Tensor (*kNumber)(const Tensor&, Number, Where)>
std::vector<Sample> bits_samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{kTensors(in[0], in[1], Where::current())};
  };
  return {{.name = "uneven", .inputs = {integers({5, 3}), below(9, {5, 3})}, .call = call},
          {.name = "bool and int32, broadcast", .inputs = {bools({4, 1}), integers({3}, kInt32)}, .call = call},
          {.name = "bool, empty", .inputs = {bools({0, 3}), bools({3})}, .call = call},
          {.name = "number", .inputs = {integers({7}, kInt16)}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{kNumber(in[0], 6, Where::current())};
           }}};
}
template <Tensor (*kTensors)(const Tensor&, const Tensor&, Where), Tensor (*kNumber)(const Tensor&, Number, Where)>
std::vector<Sample> shift_samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{kTensors(in[0], in[1], Where::current())};
  };
  return {{.name = "uneven", .inputs = {integers({5, 3}), below(5, {5, 3})}, .call = call},
          {.name = "mixed dtypes, broadcast", .inputs = {integers({4, 1}), below(5, {3}, kInt32)}, .call = call},
          {.name = "number", .inputs = {integers({7}, kInt16)}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{kNumber(in[0], 2, Where::current())};
           }}};
}

}  // namespace

constinit OperatorDef logical_xor_op = {
    .name = "logical_xor",
    .signature = "logical_xor(a, b) -> Tensor",
    .infer = infer_comparison,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(logical_xor_kernel),
    .samples = logical_xor_samples,
    .saved_inputs = 0,
};
constinit OperatorDef bitwise_not_op = {
    .name = "bitwise_not",
    .signature = "bitwise_not(x) -> Tensor",
    .infer = not_infer,
    .rule = not_rule,
    .kernel = DTORCH_KERNEL(unary_kernel<DTORCH_ATEN(bitwise_not), DTORCH_ATEN(bitwise_not_outf)>),
    .samples = not_samples,
    .saved_inputs = 0,
};
constinit OperatorDef bitwise_and_op = {
    .name = "bitwise_and",
    .signature = "bitwise_and(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = bits_infer,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<AndOp>),
    .samples = bits_samples<bitwise_and, bitwise_and>,
    .saved_inputs = 0,
};
constinit OperatorDef bitwise_or_op = {
    .name = "bitwise_or",
    .signature = "bitwise_or(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = bits_infer,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<OrOp>),
    .samples = bits_samples<bitwise_or, bitwise_or>,
    .saved_inputs = 0,
};
constinit OperatorDef bitwise_xor_op = {
    .name = "bitwise_xor",
    .signature = "bitwise_xor(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = bits_infer,
    .rule = elementwise_rule_of<Linear::kNo>,
    .kernel = DTORCH_KERNEL(binary_kernel<XorOp>),
    .samples = bits_samples<bitwise_xor, bitwise_xor>,
    .saved_inputs = 0,
};
constinit OperatorDef bitwise_left_shift_op = {
    .name = "bitwise_left_shift",
    .signature = "bitwise_left_shift(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = shift_infer,
    .rule = left_shift_rule,
    .kernel = DTORCH_KERNEL(binary_kernel<LeftShiftOp>),
    .samples = shift_samples<bitwise_left_shift, bitwise_left_shift>,
    .linear_in = "a",
    .saved_inputs = 0,
};
constinit OperatorDef bitwise_right_shift_op = {
    .name = "bitwise_right_shift",
    .signature = "bitwise_right_shift(a, b) -> Tensor",
    .attributes = attribute_codec<BinaryAttrs>(),
    .infer = shift_infer,
    .rule = right_shift_rule,
    .kernel = DTORCH_KERNEL(binary_kernel<RightShiftOp>),
    .samples = shift_samples<bitwise_right_shift, bitwise_right_shift>,
    .saved_inputs = 0,
};

namespace {
Tensor record_with_integer(const OperatorDef& op, const Tensor& a, Number b, const Where& where) {
  if (b.is_floating) {
    throw at_line(DTypeError("[" + std::string(op.name) + "] the number is " + std::to_string(b.floating) +
                             ", must be an integer or bool"),
                  where);
  }
  return record_with_number(op, a, b, false, where);
}
}  // namespace

Tensor logical_xor(const Tensor& a, const Tensor& b, Where where) {
  return record(logical_xor_op, NoAttrs{}, {&a, &b}, where);
}
Tensor bitwise_not(const Tensor& x, Where where) { return record(bitwise_not_op, NoAttrs{}, {&x}, where); }
Tensor bitwise_and(const Tensor& a, const Tensor& b, Where where) { return record_binary(bitwise_and_op, a, b, where); }
Tensor bitwise_and(const Tensor& a, Number b, Where where) { return record_with_integer(bitwise_and_op, a, b, where); }
Tensor bitwise_or(const Tensor& a, const Tensor& b, Where where) { return record_binary(bitwise_or_op, a, b, where); }
Tensor bitwise_or(const Tensor& a, Number b, Where where) { return record_with_integer(bitwise_or_op, a, b, where); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b, Where where) { return record_binary(bitwise_xor_op, a, b, where); }
Tensor bitwise_xor(const Tensor& a, Number b, Where where) { return record_with_integer(bitwise_xor_op, a, b, where); }
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b, Where where) {
  return record_binary(bitwise_left_shift_op, a, b, where);
}
Tensor bitwise_left_shift(const Tensor& a, Number b, Where where) {
  return record_with_integer(bitwise_left_shift_op, a, b, where);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b, Where where) {
  return record_binary(bitwise_right_shift_op, a, b, where);
}
Tensor bitwise_right_shift(const Tensor& a, Number b, Where where) {
  return record_with_integer(bitwise_right_shift_op, a, b, where);
}

}  // namespace dtorch
