// glu(x, dim) = a sigmoid(b), a and b the halves of x along dim, of LibTorch's own kernel. Layouts: same on every dim
// but `dim`, which must not be sharded; no Partial. bilinear(x1 [..., I], x2 [..., J], weight [O, I, J], bias) is a
// composition of two contractions. Gradients: g sigmoid(b) and g a sigmoid(b) (1 - sigmoid(b)).
#include "ops/math/operators.h"
#include "ops/nn/operators.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/glu.h>
#include <ATen/ops/glu_cpu_dispatch.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

struct GluAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  need_floating(context, 0);
  const int64_t dim = context.attributes<GluAttrs>().dim;
  Shape shape = context.shape(0);
  if (shape[dim] % 2 != 0) {
    throw ShapeError("[glu] dim " + std::to_string(dim) + " of " + shape.str() + " must have an even size");
  }
  shape[dim] /= 2;
  return {{shape, context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int16_t blocked[] = {static_cast<int16_t>(context.attributes<GluAttrs>().dim + 1)};
  return rule_of({letters(ndim)}, {letters(ndim)}, blocked);
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(glu)(input(context, 0), context.attributes<GluAttrs>().dim));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  const int64_t dim = context.attributes<GluAttrs>().dim;
  const Tensor x = context.input(0), &g = context.grad_output(0);
  const int64_t half = x.shape()[dim] / 2;
  const std::vector<Tensor> halves = split(x, {half, half}, dim);
  const Tensor gate = sigmoid(halves[1]);
  const Tensor slope = mul(mul(halves[0], gate), 1.0 - gate);
  return {cat({mul(gate, g), mul(slope, g)}, dim)};
}

std::vector<Sample> glu_samples() {
  auto along = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) { return std::vector<Tensor>{glu(in[0], dim)}; };
  };
  return {{.name = "uneven, last dim", .inputs = {{{5, 6}}}, .call = along(-1)},
          {.name = "first dim, a dim of size 1", .inputs = {{{4, 1, 3}, kFloat64}}, .call = along(0)}};
}
std::vector<Sample> bilinear_samples() {
  auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{bilinear(in[0], in[1], in[2], in.size() > 3 ? in[3] : Tensor())};
  };
  return {{.name = "uneven",
           .inputs = {{{5, 3}, kFloat64}, {{5, 2}, kFloat64}, {{4, 3, 2}, kFloat64}},
           .call = call,
           .tolerance = 1e-11},
          {.name = "one row, bias",
           .inputs = {{{1, 2}, kFloat64}, {{1, 2}, kFloat64}, {{3, 2, 2}, kFloat64}, {{3}, kFloat64}},
           .call = call,
           .tolerance = 1e-11}};
}

}  // namespace

constinit OperatorDef glu_op = {.name = "glu",
                                .signature = "glu(x, dim) -> Tensor",
                                .attributes = attribute_codec<GluAttrs>(),
                                .infer = infer,
                                .rule = rule,
                                .kernel = DTORCH_KERNEL(kernel),
                                .gradient = gradient,
                                .samples = glu_samples};
constinit OperatorDef bilinear_op = {.name = "bilinear",
                                     .signature = "bilinear(x1, x2, weight, bias) -> Tensor",
                                     .samples = bilinear_samples,
                                     .linear_in = "each"};

Tensor glu(const Tensor& x, int64_t dim, Where where) {
  return record(glu_op, GluAttrs{normalize_dim(dim, x.ndim(), "glu", where)}, {&x}, where);
}

Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias, Where where) {
  SourceScope scope(where);
  const int64_t rows = x1.ndim() - 1;
  if (x1.ndim() == 0 || x2.ndim() != x1.ndim() || weight.ndim() != 3) {
    throw at_line(ShapeError("[bilinear] got " + x1.shape().str() + ", " + x2.shape().str() + " and weight " +
                             weight.shape().str() + ", expected [..., I], [..., J] and [O, I, J]"),
                  where);
  }
  std::string batch;
  for (int64_t d = 0; d < rows; ++d) batch.push_back(static_cast<char>('A' + d));
  const Tensor half = einsum(batch + "i,oij->" + batch + "oj", x1, weight, where);
  const Tensor out = einsum(batch + "oj," + batch + "j->" + batch + "o", half, x2, where);
  return bias.defined() ? add(out, bias, where) : out;
}

}  // namespace dtorch
