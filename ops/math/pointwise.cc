// Inference, rows and samples of pointwise.h.
#include "ops/math/pointwise.h"

namespace dtorch::math {
namespace {

[[noreturn]] void refuse(const InferContext& context, DType dtype, const char* needed) {
  throw DTypeError("[" + std::string(context.op) + "] got " + name_of(dtype) + ", needs " + needed);
}

}  // namespace

std::vector<OutputMeta> infer_needs_floating(const InferContext& context) {
  if (!is_floating(context.dtype(0))) refuse(context, context.dtype(0), "a floating dtype; convert with to(kFloat32)");
  return infer_same(context);
}

std::vector<OutputMeta> infer_binary_floating(const InferContext& context) {
  return {{broadcast_inputs(context), floating_result_dtype(context.inputs, context.attributes<BinaryAttrs>().number)}};
}

std::vector<OutputMeta> infer_binary_needs_floating(const InferContext& context) {
  std::vector<OutputMeta> outputs = infer_binary(context);
  const DType dtype = outputs[0].dtype;
  if (!is_floating(dtype)) refuse(context, dtype, "a floating dtype; convert with to(kFloat32)");
  return outputs;
}

std::vector<OutputMeta> infer_binary_no_bool(const InferContext& context) {
  std::vector<OutputMeta> outputs = infer_binary(context);
  if (outputs[0].dtype == kBool) refuse(context, kBool, "numbers; convert with to(kInt64)");
  return outputs;
}

void need_one_dtype(const InferContext& context) {
  for (const TensorMeta* input : context.inputs) {
    if (input->dtype == context.dtype(0)) continue;
    throw DTypeError("[" + std::string(context.op) + "] got " + name_of(context.dtype(0)) + " and " +
                     name_of(input->dtype) + ", needs operands of one dtype; convert with to()");
  }
}

void add_partial_row(Rule* rule, std::initializer_list<size_t> partial, ReduceOp kind, ReduceOp result) {
  Row row{std::vector<Placement>(rule->input_letters.size()), {Partial(result)}};
  for (size_t i : partial) row.inputs[i] = Partial(kind);
  rule->rows.push_back(std::move(row));
}

std::vector<Sample> activation_samples(Tensor (*function)(const Tensor&, Where)) {
  std::vector<Sample> samples = unary_samples(function);
  samples.push_back(
      {.name = "bfloat16",
       .inputs = {normal({2, 3}, kBFloat16)},
       .call =
           [function](const std::vector<Tensor>& in) { return std::vector<Tensor>{function(in[0], Where::current())}; },
       .tolerance = 2e-2});
  return samples;
}

}  // namespace dtorch::math
