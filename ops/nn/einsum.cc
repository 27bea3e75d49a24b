// einsum(formula, operands): a product of tensors, summed over the letters that aren't in the result. The operator
// takes plain formulas (einsum_formula.h); the user's function takes diagonals for letters that stand twice in an
// operand and drops dims of size 1 that are broadcast. Sharding a letter shards it wherever it stands; a summed one
// gives Partial(sum); linear in each operand. Gradient of an operand: einsum of g and the others, expanded over letters
// that only it has.
#include <algorithm>

#include "ops/math/contractions.h"
#include "ops/math/operators.h"
#include "ops/math/products.h"
#include "ops/nn/einsum_formula.h"
#include "ops/nn/operators.h"
#include "ops/shape/functions.h"
#include "ops/shape/rearrange.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/einsum_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

struct EinsumAttrs {
  std::string formula;  // plain
  template <class V>
  void fields(V& v) {
    v("formula", formula);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const EinsumFormula f = split_formula(context.attributes<EinsumAttrs>().formula);
  std::vector<const Shape*> shapes;
  for (size_t i = 0; i < context.inputs.size(); ++i) shapes.push_back(&context.shape(i));
  for (size_t i = 1; i < context.inputs.size(); ++i) need_same_dtype(context, 0, i);
  math::refuse_mixed_dtypes(context);
  Shape out;
  for (char c : f.result) out.push_back(size_of_letter(f, shapes, c));
  return {{out, context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return einsum_rule(context.attributes<EinsumAttrs>().formula);
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  std::vector<at::Tensor> operands;
  for (size_t i = 0; i < context.num_inputs(); ++i) operands.push_back(input(context, i));
  set_output(context, 0, at::native::einsum(context.attributes<EinsumAttrs>().formula, operands));
}
#endif

// einsum of g and the operands but i gives the letters that they have; the others are expanded.
Tensor gradient_of_operand(const GradientContext& context, const EinsumFormula& f, size_t i) {
  EinsumFormula formula{{f.result}, {}};
  std::vector<Tensor> operands = {context.grad_output(0)};
  std::string present = f.result;
  for (size_t k = 0; k < f.operands.size(); ++k) {
    if (k == i) continue;
    formula.operands.push_back(f.operands[k]);
    operands.push_back(context.input(k));
    present += f.operands[k];
  }
  const std::string& own = f.operands[i];
  std::vector<int64_t> missing;
  for (size_t d = 0; d < own.size(); ++d) {
    if (present.find(own[d]) == std::string::npos) {
      missing.push_back(static_cast<int64_t>(d));
    } else {
      formula.result.push_back(own[d]);
    }
  }
  Tensor gradient = einsum(formula.str(), operands);
  if (missing.empty()) return gradient;
  const TensorMeta& meta = context.input_meta(i);
  for (int64_t d : missing) gradient = unsqueeze(gradient, d);
  return math::place_gradient(expand(gradient, {meta.global_shape.begin(), meta.global_shape.end()}), meta);
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const EinsumFormula f = split_formula(context.attributes<EinsumAttrs>().formula);
  std::vector<Tensor> gradients(context.num_inputs());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (context.needs_grad(i)) gradients[i] = gradient_of_operand(context, f, i);
  }
  return gradients;
}

std::vector<Sample> samples() {
  const auto call = [](const char* formula) {
    return [formula](const std::vector<Tensor>& in) { return std::vector<Tensor>{einsum(formula, in)}; };
  };
  return {{.name = "heads out of a projection",
           .inputs = {{{3, 5, 4}, kFloat64}, {{3, 2, 4}, kFloat64}},
           .call = call("btd,hkd->bhtk"),
           .tolerance = 1e-11},
          {.name = "heads into a projection",
           .inputs = {{{3, 5, 1, 2}, kFloat64}, {{4, 5, 2}, kFloat64}},
           .call = call("bhtk,dhk->btd"),
           .tolerance = 1e-11},
          {.name = "three operands, one letter in one operand only",
           .inputs = {{{5, 2}, kFloat64}, {{2, 3}, kFloat64}, {{3, 4}, kFloat64}},
           .call = call("ij,jk,kl->i"),
           .tolerance = 1e-11},
          {.name = "one operand, implied result, integers",
           .inputs = {{{5, 3}, kInt64, SampleFill::kIota, 0, false}},
           .call = call("ba")},
          {.name = "sum of all", .inputs = {{{5, 3}, kFloat64}}, .call = call("ij->"), .tolerance = 1e-11},
          {.name = "dots and broadcasting",
           .inputs = {{{5, 1, 3}, kFloat64}, {{2, 3}, kFloat64}},
           .call = call("...i,...i->..."),
           .tolerance = 1e-11},
          {.name = "diagonal", .inputs = {{{5, 5}}, {{5, 2}}}, .call = call("ii,ij->ij")}};
}

// x with the diagonal of two dims that have one letter as its last dim.
void take_diagonals(std::string* letters, Tensor* x, const Where& where) {
  for (size_t i = 0; i < letters->size();) {
    const char letter = (*letters)[i];
    const size_t again = letters->find(letter, i + 1);
    if (again == std::string::npos) {
      ++i;
      continue;
    }
    const Shape& shape = x->shape();
    if (shape[static_cast<int64_t>(i)] != shape[static_cast<int64_t>(again)]) {
      throw at_line(
          ShapeError(std::string("[einsum] letter '") + letter + "' is " +
                     std::to_string(shape[static_cast<int64_t>(i)]) + " and " +
                     std::to_string(shape[static_cast<int64_t>(again)]) + " in one operand of shape " + shape.str()),
          where);
    }
    *x = diagonal(*x, 0, static_cast<int64_t>(i), static_cast<int64_t>(again), where);
    letters->erase(again, 1);
    letters->erase(i, 1);
    letters->push_back(letter);
  }
}

}  // namespace

constinit OperatorDef einsum_op = {.name = "einsum",
                                   .signature = "einsum(formula, operands) -> Tensor",
                                   .attributes = attribute_codec<EinsumAttrs>(),
                                   .infer = infer,
                                   .rule = rule,
                                   .kernel = DTORCH_KERNEL(kernel),
                                   .gradient = gradient,
                                   .samples = samples,
                                   .linear_in = "each"};

Tensor einsum(const std::string& text, const std::vector<Tensor>& operands, Where where) {
  std::vector<Tensor> inputs = operands;
  std::vector<const Shape*> shapes;
  for (const Tensor& x : inputs) shapes.push_back(&x.shape());
  EinsumFormula formula;
  try {
    formula = read_formula(text, shapes);
    for (const std::string& letters : formula.operands) {
      for (char letter : letters) size_of_letter(formula, shapes, letter);
    }
  } catch (const ShapeError& error) {
    throw at_line(error, where);
  } catch (const UserError& error) {
    throw at_line(error, where);
  }
  const EinsumFormula given = formula;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string& letters = formula.operands[i];
    take_diagonals(&letters, &inputs[i], where);
    for (size_t d = letters.size(); d-- > 0;) {
      const auto dim = static_cast<int64_t>(d);
      if (inputs[i].shape()[dim] != 1 || size_of_letter(given, shapes, letters[d]) == 1) continue;
      inputs[i] = squeeze(inputs[i], dim, where);
      letters.erase(d, 1);
    }
  }
  return std::move(record_list(einsum_op, EinsumAttrs{formula.str()}, inputs, 1, where)[0]);
}
Tensor einsum(const std::string& formula, const Tensor& a, const Tensor& b, Where where) {
  return einsum(formula, {a, b}, where);
}

}  // namespace dtorch
