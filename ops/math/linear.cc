// linear(x [..., K], weight [N, K], bias [N] or none) = x weight^T + bias [..., N]. Layouts: leading dims of x and N
// shard the result; sharding K gives Partial(sum) with the bias Partial too, so that it is added once (a Replicate bias
// is converted for free). Gradients: g weight; contract_leading(g, x); g summed over the leading dims. Also
// contract_leading, which products' gradients need.
#include <algorithm>

#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/products.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/linear_native.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/zeros.h>
#endif

namespace dtorch {
namespace math {

Rule letters_rule(std::vector<Letters> inputs, const Letters& output) {
  Rule rule;
  rule.input_letters = std::move(inputs);
  rule.output_letters = {output};
  std::vector<int16_t> letters;
  for (const Letters& operand : rule.input_letters) {
    for (int16_t letter : operand) {
      if (letter != kNoLetter && std::find(letters.begin(), letters.end(), letter) == letters.end())
        letters.push_back(letter);
    }
  }
  const auto placement = [](const Letters& operand, int16_t letter, Placement otherwise) {
    const auto found = std::find(operand.begin(), operand.end(), letter);
    return found == operand.end() ? otherwise : Shard(found - operand.begin());
  };
  for (int16_t letter : letters) {
    Row row;
    for (const Letters& operand : rule.input_letters) row.inputs.push_back(placement(operand, letter, Replicate()));
    row.outputs.push_back(placement(output, letter, Partial(kSum)));
    rule.rows.push_back(row);
  }
  return rule;
}

void add_multilinear_rows(size_t num_factors, Rule* rule) {
  for (ReduceOp kind : {kSum, kAvg}) {
    for (size_t i = 0; i < num_factors; ++i) {
      Row row{std::vector<Placement>(rule->input_letters.size()), {Partial(kind)}};
      row.inputs[i] = Partial(kind);
      // An addend (the bias of linear) is Partial with the product.
      for (size_t addend = num_factors; addend < row.inputs.size(); ++addend) row.inputs[addend] = Partial(kind);
      rule->rows.push_back(row);
    }
  }
}

void refuse_mixed_dtypes(const InferContext& context) {
  for (size_t i = 1; i < context.inputs.size(); ++i) {
    if (context.dtype(i) == context.dtype(0)) continue;
    throw DTypeError("[" + std::string(context.op) + "] operands must have one dtype, got " +
                     name_of(context.dtype(0)) + " and " + name_of(context.dtype(i)) + "; convert one with to(dtype)");
  }
  if (context.dtype(0) == kBool) throw DTypeError("[" + std::string(context.op) + "] isn't defined for bool");
}

namespace {

std::vector<OutputMeta> contract_infer(const InferContext& context) {
  refuse_mixed_dtypes(context);
  const Shape &a = context.shape(0), &b = context.shape(1);
  DTORCH_CHECK(a.ndim() >= 1 && a.ndim() == b.ndim() && std::equal(a.begin(), a.end() - 1, b.begin()),
               a.str() + " and " + b.str());
  return {{{a.back(), b.back()}, context.dtype(0)}};
}
Rule contract_rule(const InferContext& context, std::span<const OutputMeta>) {
  Letters a, b;
  for (int64_t d = 0; d + 1 < context.shape(0).ndim(); ++d) {
    a.push_back(static_cast<int16_t>(3 + d));
    b.push_back(static_cast<int16_t>(3 + d));
  }
  a.push_back(1);
  b.push_back(2);
  Rule rule = letters_rule({a, b}, Letters{1, 2});
  add_multilinear_rows(2, &rule);
  return rule;
}

#if DTORCH_WITH_KERNELS
at::Tensor as_matrix(const at::Tensor& x) {
  return x.dim() == 2 ? x : x.reshape({x.numel() / std::max<int64_t>(1, x.size(-1)), x.size(-1)});
}
void contract_kernel(KernelContext& context) {
  const at::Tensor &a = input(context, 0), &b = input(context, 1);
  // A part without columns has no element that tells its number of rows.
  if (a.numel() == 0 || b.numel() == 0) return set_output(context, 0, at::zeros(output_sizes(context, 0), a.options()));
  set_output(context, 0, DTORCH_ATEN(mm)(as_matrix(a).t(), as_matrix(b)));
}
#endif

}  // namespace
}  // namespace math

constinit OperatorDef contract_leading_op = {
    .name = "contract_leading",
    .signature = "matmul/linear(a, b) -> gradient of a weight",
    .infer = math::contract_infer,
    .rule = math::contract_rule,
    .kernel = DTORCH_KERNEL(math::contract_kernel),
    .linear_in = "each",
    .saved_inputs = 0,
};

Tensor math::contract_leading(const Tensor& a, const Tensor& b, Where where) {
  return record(contract_leading_op, NoAttrs{}, {&a, &b}, where);
}

namespace {

using namespace math;

std::vector<OutputMeta> linear_infer(const InferContext& context) {
  const Shape &x = context.shape(0), &weight = context.shape(1);
  if (x.ndim() < 1 || weight.ndim() != 2 || x.back() != weight[1]) {
    throw ShapeError("[linear] x is " + x.str() + ", weight is " + weight.str() +
                     "; needed are [..., in_features] and " + "[out_features, in_features]");
  }
  if (context.inputs.size() == 3 && context.shape(2) != Shape{weight[0]}) {
    throw ShapeError("[linear] bias is " + context.shape(2).str() + ", needed is [" + std::to_string(weight[0]) + "]");
  }
  refuse_mixed_dtypes(context);
  Shape shape = x;
  shape.back() = weight[0];
  return {{shape, context.dtype(0)}};
}

Rule linear_rule(const InferContext& context, std::span<const OutputMeta>) {
  Letters x, out;
  for (int64_t d = 0; d + 1 < context.shape(0).ndim(); ++d) x.push_back(static_cast<int16_t>(3 + d));
  out = x;
  x.push_back(1);
  out.push_back(2);
  std::vector<Letters> inputs = {x, Letters{2, 1}};
  if (context.inputs.size() == 3) inputs.push_back(Letters{2});
  Rule rule = letters_rule(inputs, out);
  for (Row& row : rule.rows) {
    if (context.inputs.size() == 3 && row.outputs[0].is_partial()) row.inputs[2] = Partial(kSum);
  }
  add_multilinear_rows(2, &rule);
  return rule;
}

std::vector<Tensor> linear_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  std::vector<Tensor> gradients(context.num_inputs());
  if (context.needs_grad(0)) gradients[0] = matmul(g, context.input(1));
  if (context.needs_grad(1)) gradients[1] = contract_leading(g, context.input(0));
  if (gradients.size() == 3 && context.needs_grad(2)) gradients[2] = fit_gradient(g, context.input_meta(2));
  return gradients;
}

#if DTORCH_WITH_KERNELS
void linear_kernel(KernelContext& context) {
  const at::Tensor &x = input(context, 0), &weight = input(context, 1);
  set_output(
      context, 0,
      context.num_inputs() == 3 ? at::native::linear(x, weight, input(context, 2)) : at::native::linear(x, weight, {}));
}
#endif

std::vector<Sample> linear_samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{linear(in[0], in[1], in.size() == 3 ? in[2] : Tensor())};
  };
  return {
      {.name = "matrix with bias", .inputs = {normal({5, 7}), normal({3, 7}), normal({3})}, .call = call},
      {.name = "batch without bias", .inputs = {normal({2, 5, 3}, kFloat64), normal({4, 3}, kFloat64)}, .call = call},
      {.name = "batch with bias",
       .inputs = {normal({2, 3, 5}, kFloat64), normal({3, 5}, kFloat64), normal({3}, kFloat64)},
       .call = call},
      {.name = "vector", .inputs = {normal({5}), normal({3, 5}), normal({3})}, .call = call},
      {.name = "size 1 and empty", .inputs = {normal({0, 1}), normal({2, 1}), normal({2})}, .call = call}};
}

}  // namespace

constinit OperatorDef linear_op = {
    .name = "linear",
    .signature = "linear(x, weight, bias) -> Tensor",
    .infer = linear_infer,
    .rule = linear_rule,
    .kernel = DTORCH_KERNEL(linear_kernel),
    .gradient = linear_gradient,
    .samples = linear_samples,
    .linear_in = "x or weight, with the bias",
    .saved_inputs = 3,
};

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Where where) {
  if (!bias.defined()) return record(linear_op, NoAttrs{}, {&x, &weight}, where);
  return record(linear_op, NoAttrs{}, {&x, &weight, &bias}, where);
}

}  // namespace dtorch
