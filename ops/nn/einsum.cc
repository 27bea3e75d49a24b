// einsum(formula, a, b): contraction of two tensors, letters as in the formula, each at most once in an operand;
// letters that aren't in the result are summed and stand in both operands. Sharding a summed letter gives Partial(sum);
// linear in each operand. Gradients: da = einsum of (g, b), db = einsum of (g, a).
#include <map>

#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/einsum.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

struct EinsumAttrs {
  std::string formula;  // without spaces
  template <class V>
  void fields(V& v) {
    v("formula", formula);
  }
};

struct Formula {
  std::string a, b, out;
};

// Throws UserError that says what is wrong with the formula.
Formula parse(const std::string& text) {
  auto fail = [&](const std::string& what) { return UserError("[einsum] formula '" + text + "': " + what); };
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow)
    throw fail("expected the form 'ab,bc->ac'");
  Formula f{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1), text.substr(arrow + 2)};
  for (const std::string* part : {&f.a, &f.b, &f.out}) {
    for (size_t i = 0; i < part->size(); ++i) {
      const char c = (*part)[i];
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) throw fail(std::string("'") + c + "' isn't a letter");
      if (part->find(c) != i) throw fail(std::string("'") + c + "' stands twice in one operand");
    }
  }
  auto has = [](const std::string& s, char c) { return s.find(c) != std::string::npos; };
  for (char c : f.a + f.b) {
    const bool both = has(f.a, c) && has(f.b, c);
    if (!both && !has(f.out, c))
      throw fail(std::string("'") + c + "' is in one operand only and not in the result; sum it first");
  }
  for (char c : f.out) {
    if (!has(f.a, c) && !has(f.b, c)) throw fail(std::string("'") + c + "' of the result is in no operand");
  }
  return f;
}

std::vector<OutputMeta> infer(const InferContext& context) {
  const Formula f = parse(context.attributes<EinsumAttrs>().formula);
  std::map<char, int64_t> sizes;
  const std::string* parts[] = {&f.a, &f.b};
  for (size_t i = 0; i < 2; ++i) {
    const Shape& shape = context.shape(i);
    if (shape.ndim() != static_cast<int64_t>(parts[i]->size())) {
      throw ShapeError("[einsum] operand " + std::to_string(i) + " has shape " + shape.str() + ", the formula '" +
                       context.attributes<EinsumAttrs>().formula + "' gives it " + std::to_string(parts[i]->size()) +
                       " dims");
    }
    for (int64_t d = 0; d < shape.ndim(); ++d) {
      auto [at, is_new] = sizes.try_emplace((*parts[i])[static_cast<size_t>(d)], shape[d]);
      if (!is_new && at->second != shape[d]) {
        throw ShapeError(std::string("[einsum] letter '") + at->first + "' is " + std::to_string(at->second) +
                         " in operand 0 and " + std::to_string(shape[d]) + " in operand 1: shapes " +
                         context.shape(0).str() + " and " + context.shape(1).str());
      }
    }
  }
  if (context.dtype(0) != context.dtype(1)) {
    throw DTypeError(std::string("[einsum] operands are ") + name_of(context.dtype(0)) + " and " +
                     name_of(context.dtype(1)) + ", they must be equal; convert one with to()");
  }
  Shape out;
  for (char c : f.out) out.push_back(sizes.at(c));
  return {{out, context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return einsum_rule(context.attributes<EinsumAttrs>().formula);
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  at::Tensor out = at::einsum(context.attributes<EinsumAttrs>().formula, {input(context, 0), input(context, 1)});
  set_output(context, 0, std::move(out));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  const Where where = Where::current();
  const Formula f = parse(context.attributes<EinsumAttrs>().formula);
  const Tensor& g = context.grad_output(0);
  std::vector<Tensor> out(2);
  if (context.needs_grad(0)) out[0] = einsum(f.out + "," + f.b + "->" + f.a, g, context.input(1), where);
  if (context.needs_grad(1)) out[1] = einsum(f.out + "," + f.a + "->" + f.b, g, context.input(0), where);
  return out;
}

std::vector<Sample> samples() {
  auto call = [](const char* formula) {
    return [formula](const std::vector<Tensor>& in) { return std::vector<Tensor>{einsum(formula, in[0], in[1])}; };
  };
  return {{.name = "heads out of a projection",
           .inputs = {{{3, 5, 4}, kFloat64}, {{3, 2, 4}, kFloat64}},
           .call = call("btd,hkd->bhtk"),
           .tolerance = 1e-11},
          {.name = "heads into a projection",
           .inputs = {{{3, 5, 1, 2}, kFloat64}, {{4, 5, 2}, kFloat64}},
           .call = call("bhtk,dhk->btd"),
           .tolerance = 1e-11}};
}

}  // namespace

constinit OperatorDef einsum_op = {.name = "einsum",
                                   .signature = "einsum(formula, a, b) -> Tensor",
                                   .attributes = attribute_codec<EinsumAttrs>(),
                                   .infer = infer,
                                   .rule = rule,
                                   .kernel = DTORCH_KERNEL(kernel),
                                   .gradient = gradient,
                                   .samples = samples,
                                   .linear_in = "each"};

Tensor einsum(const std::string& formula, const Tensor& a, const Tensor& b, Where where) {
  EinsumAttrs attributes;
  for (char c : formula) {
    if (c != ' ') attributes.formula.push_back(c);
  }
  return record(einsum_op, attributes, {&a, &b}, where);
}

}  // namespace dtorch
