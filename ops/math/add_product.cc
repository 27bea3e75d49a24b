// addmm, addmv, addbmm, baddbmm and addr: beta c + alpha (a times b), where c is broadcast to the product's shape.
// Layouts, by letters: sharding what the result has shards it; sharding a contracted letter gives Partial(sum) with c
// Partial too, so that it is added once; linear in c and one factor together. With beta 0, c isn't read. scalars: beta,
// alpha. Gradients: beta g; alpha times the products of g with the other factor.
#include "ops/create/aten_call.h"
#include "ops/math/contractions.h"
#include "ops/math/kernels.h"
#include "ops/math/products.h"
#include "ops/shape/composed.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addbmm_native.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;
using shaping::single;

// Letters of the factors and of the product.
struct Formula {
  std::string_view a, b, out;
};
constexpr Formula kAddmm{"mk", "kn", "mn"}, kAddmv{"mk", "k", "m"}, kAddbmm{"bmk", "bkn", "mn"},
    kBaddbmm{"bmk", "bkn", "bmn"}, kAddr{"m", "n", "mn"};

struct AddProductAttrs {
  int64_t beta = kInteger, alpha = kInteger;  // NumberKind
  template <class V>
  void fields(V& v) {
    v("beta", beta);
    v("alpha", alpha);
  }
};

int64_t size_of_letter(const Formula& f, const Shape& a, const Shape& b, char letter) {
  const size_t in_a = f.a.find(letter);
  return in_a != std::string_view::npos ? a[static_cast<int64_t>(in_a)] : b[static_cast<int64_t>(f.b.find(letter))];
}

template <const Formula& f>
std::vector<OutputMeta> infer(const InferContext& context) {
  const Shape &c = context.shape(0), &a = context.shape(1), &b = context.shape(2);
  bool legal = a.ndim() == std::ssize(f.a) && b.ndim() == std::ssize(f.b);
  for (size_t d = 0; legal && d < f.b.size(); ++d) {
    legal = size_of_letter(f, a, b, f.b[d]) == b[static_cast<int64_t>(d)];
  }
  if (!legal) {
    throw ShapeError("[" + std::string(context.op) + "] factors are " + a.str() + " and " + b.str() +
                     ", needed are dims " + std::string(f.a) + " and " + std::string(f.b) +
                     " with equal sizes of equal letters");
  }
  Shape shape;
  for (char letter : f.out) shape.push_back(size_of_letter(f, a, b, letter));
  bool fits = c.ndim() <= shape.ndim();
  for (int64_t d = 0; fits && d < c.ndim(); ++d) {
    fits = c[d] == 1 || c[d] == shape[d + shape.ndim() - c.ndim()];
  }
  if (!fits) {
    throw ShapeError("[" + std::string(context.op) + "] the addend is " + c.str() + ", can't be expanded to " +
                     shape.str());
  }
  refuse_mixed_dtypes(context);
  const auto& attributes = context.attributes<AddProductAttrs>();
  if (!is_floating(context.dtype(0)) && (attributes.beta == kFloating || attributes.alpha == kFloating)) {
    throw DTypeError("[" + std::string(context.op) + "] beta and alpha must be integers for " +
                     name_of(context.dtype(0)));
  }
  return {{shape, context.dtype(0)}};
}

Letters letters_of(std::string_view text) {
  Letters letters;
  for (char c : text) letters.push_back(static_cast<int16_t>(c));
  return letters;
}

template <const Formula& f>
Rule rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape &c = context.shape(0), &out = outputs[0].global_shape;
  Letters of_c;
  for (int64_t d = 0; d < c.ndim(); ++d) {
    const int64_t out_dim = d + out.ndim() - c.ndim();
    of_c.push_back(c[d] == out[out_dim] ? static_cast<int16_t>(f.out[static_cast<size_t>(out_dim)]) : kNoLetter);
  }
  Rule rule = letters_rule({of_c, letters_of(f.a), letters_of(f.b)}, letters_of(f.out));
  for (Row& row : rule.rows) {
    if (row.outputs[0].is_partial()) row.inputs[0] = Partial(kSum);
  }
  for (ReduceOp kind : {kSum, kAvg}) {
    rule.rows.push_back({{Partial(kind), Partial(kind), Replicate()}, {Partial(kind)}});
    rule.rows.push_back({{Partial(kind), Replicate(), Partial(kind)}, {Partial(kind)}});
  }
  return rule;
}

Tensor times(const Tensor& x, const Scalar& number, int64_t kind) {
  if (number.as_double() == 1) return x;
  return kind == kFloating ? mul(x, number.as_double()) : mul(x, number.as_int());
}

template <const Formula& f>
std::vector<Tensor> gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<AddProductAttrs>();
  const Tensor& g = context.grad_output(0);
  const std::string a(f.a), b(f.b), out(f.out);
  std::vector<Tensor> gradients(3);
  if (context.needs_grad(0)) {
    gradients[0] = fit_gradient(times(g, context.scalar(0), attributes.beta), context.input_meta(0));
  }
  const auto factor = [&](const std::string& formula, const Tensor& other) {
    return times(einsum(formula, {g, other}), context.scalar(1), attributes.alpha);
  };
  if (context.needs_grad(1)) gradients[1] = factor(out + "," + b + "->" + a, context.input(2));
  if (context.needs_grad(2)) gradients[2] = factor(out + "," + a + "->" + b, context.input(1));
  return gradients;
}

#if DTORCH_WITH_KERNELS
// kRun(c, a, b, beta, alpha)
template <auto kRun>
void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<AddProductAttrs>();
  set_output(context, 0,
             kRun(input(context, 0), input(context, 1), input(context, 2), number_of(context, 0, attributes.beta),
                  number_of(context, 1, attributes.alpha)));
}
// LibTorch's gives c's own shape when a part has no columns.
void addmv_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<AddProductAttrs>();
  set_output(
      context, 0,
      DTORCH_ATEN(addmv)(input(context, 0).expand(output_sizes(context, 0)), input(context, 1), input(context, 2),
                         number_of(context, 0, attributes.beta), number_of(context, 1, attributes.alpha)));
}
// LibTorch's scales c with the first matrix, so not at all in a part without any.
void addbmm_kernel(KernelContext& context) {
  if (input(context, 1).size(0) > 0) return kernel<DTORCH_BY_DEVICE(at::native::addbmm, at::addbmm)>(context);
  const at::Scalar beta = number_of(context, 0, context.attributes<AddProductAttrs>().beta);
  const at::Tensor c = input(context, 0).expand(output_sizes(context, 0));
  set_output(context, 0, beta.toDouble() == 0 ? c.mul(0).zero_() : c.mul(beta));
}
#endif

std::vector<Sample> samples_of(std::function<Tensor(const std::vector<Tensor>&, Number, Number)> call, Shape c, Shape a,
                               Shape b, Shape small_c, Shape small_a, Shape small_b) {
  const auto with = [call](Number beta, Number alpha) {
    return single([call, beta, alpha](const auto& in) { return call(in, beta, alpha); });
  };
  return {{.name = "uneven", .inputs = {normal(c), normal(a), normal(b)}, .call = with(1, 1)},
          {.name = "numbers, broadcast, float64",
           .inputs = {normal(small_c, kFloat64), normal(small_a, kFloat64), normal(small_b, kFloat64)},
           .call = with(0.5, -2.0)},
          {.name = "integers", .inputs = {integers(c), integers(a), integers(b)}, .call = with(2, 3)}};
}
std::vector<Sample> addmm_samples() {
  return samples_of([](const auto& in, Number beta, Number alpha) { return addmm(in[0], in[1], in[2], beta, alpha); },
                    {5, 3}, {5, 7}, {7, 3}, {3}, {1, 5}, {5, 3});
}
std::vector<Sample> addmv_samples() {
  return samples_of([](const auto& in, Number beta, Number alpha) { return addmv(in[0], in[1], in[2], beta, alpha); },
                    {5}, {5, 7}, {7}, {1}, {5, 1}, {1});
}
std::vector<Sample> addbmm_samples() {
  return samples_of([](const auto& in, Number beta, Number alpha) { return addbmm(in[0], in[1], in[2], beta, alpha); },
                    {5, 3}, {2, 5, 4}, {2, 4, 3}, {3}, {3, 1, 5}, {3, 5, 3});
}
std::vector<Sample> baddbmm_samples() {
  return samples_of([](const auto& in, Number beta, Number alpha) { return baddbmm(in[0], in[1], in[2], beta, alpha); },
                    {3, 5, 2}, {3, 5, 4}, {3, 4, 2}, {1, 3}, {5, 2, 1}, {5, 1, 3});
}
std::vector<Sample> addr_samples() {
  return samples_of([](const auto& in, Number beta, Number alpha) { return addr(in[0], in[1], in[2], beta, alpha); },
                    {5, 3}, {5}, {3}, {3}, {1}, {3});
}

Tensor record_add(const OperatorDef& op, const Tensor& c, const Tensor& a, const Tensor& b, const Number& beta,
                  const Number& alpha, const Where& where) {
  const Scalar scalars[] = {beta.scalar(), alpha.scalar()};
  return record(op, AddProductAttrs{kind_of(beta), kind_of(alpha)}, {&c, &a, &b}, where, {.scalars = scalars});
}

}  // namespace

constinit OperatorDef addmm_op = {
    .name = "addmm",
    .signature = "addmm(c, a, b, beta, alpha) -> Tensor",
    .attributes = attribute_codec<AddProductAttrs>(),
    .infer = infer<kAddmm>,
    .rule = rule<kAddmm>,
    .kernel = DTORCH_KERNEL(kernel<DTORCH_ATEN(addmm)>),
    .gradient = gradient<kAddmm>,
    .samples = addmm_samples,
    .linear_in = "c and one factor together",
    .saved_inputs = 6,
};
constinit OperatorDef addmv_op = {
    .name = "addmv",
    .signature = "addmv(c, a, b, beta, alpha) -> Tensor",
    .attributes = attribute_codec<AddProductAttrs>(),
    .infer = infer<kAddmv>,
    .rule = rule<kAddmv>,
    .kernel = DTORCH_KERNEL(addmv_kernel),
    .gradient = gradient<kAddmv>,
    .samples = addmv_samples,
    .linear_in = "c and one factor together",
    .saved_inputs = 6,
};
constinit OperatorDef addbmm_op = {
    .name = "addbmm",
    .signature = "addbmm(c, a, b, beta, alpha) -> Tensor",
    .attributes = attribute_codec<AddProductAttrs>(),
    .infer = infer<kAddbmm>,
    .rule = rule<kAddbmm>,
    .kernel = DTORCH_KERNEL(addbmm_kernel),
    .gradient = gradient<kAddbmm>,
    .samples = addbmm_samples,
    .linear_in = "c and one factor together",
    .saved_inputs = 6,
};
constinit OperatorDef baddbmm_op = {
    .name = "baddbmm",
    .signature = "baddbmm(c, a, b, beta, alpha) -> Tensor",
    .attributes = attribute_codec<AddProductAttrs>(),
    .infer = infer<kBaddbmm>,
    .rule = rule<kBaddbmm>,
    .kernel = DTORCH_KERNEL(kernel<DTORCH_ATEN(baddbmm)>),
    .gradient = gradient<kBaddbmm>,
    .samples = baddbmm_samples,
    .linear_in = "c and one factor together",
    .saved_inputs = 6,
};
constinit OperatorDef addr_op = {
    .name = "addr",
    .signature = "addr(c, a, b, beta, alpha) -> Tensor",
    .attributes = attribute_codec<AddProductAttrs>(),
    .infer = infer<kAddr>,
    .rule = rule<kAddr>,
    .kernel = DTORCH_KERNEL(kernel<DTORCH_BY_DEVICE(at::native::addr, at::addr)>),
    .gradient = gradient<kAddr>,
    .samples = addr_samples,
    .linear_in = "c and one factor together",
    .saved_inputs = 6,
};

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha, Where where) {
  return record_add(addmm_op, c, a, b, beta, alpha, where);
}
Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha, Where where) {
  return record_add(addmv_op, c, a, b, beta, alpha, where);
}
Tensor addbmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha, Where where) {
  return record_add(addbmm_op, c, a, b, beta, alpha, where);
}
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha, Where where) {
  return record_add(baddbmm_op, c, a, b, beta, alpha, where);
}
Tensor addr(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha, Where where) {
  return record_add(addr_op, c, a, b, beta, alpha, where);
}

}  // namespace dtorch
