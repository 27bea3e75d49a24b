// tril(x, diagonal) and triu(x, diagonal): x below and on (above and on) the diagonal of the last two dims, else 0.
// Layouts: any dim may be sharded, since a device knows the rows and columns of its part; Partial of every kind passes
// (0 is what zeros of all parts reduce to). Gradients: tril(g), triu(g).
#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/tril.h>
#include <ATen/ops/tril_cpu_dispatch.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/triu_cpu_dispatch.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct TriangleAttrs {
  int64_t diagonal = 0;
  template <class V>
  void fields(V& v) {
    v("diagonal", diagonal);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  if (context.shape(0).ndim() < 2) {
    throw ShapeError("[" + std::string(context.op) + "] needs at least 2 dims, got " + context.shape(0).str());
  }
  return {{context.shape(0), context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return keeping_rule(context.shape(0).ndim(), {});
}

std::vector<Tensor> tril_gradient(const GradientContext& context) {
  return {tril(context.grad_output(0), context.attributes<TriangleAttrs>().diagonal)};
}
std::vector<Tensor> triu_gradient(const GradientContext& context) {
  return {triu(context.grad_output(0), context.attributes<TriangleAttrs>().diagonal)};
}

#if DTORCH_WITH_KERNELS
// The diagonal's number in this device's part.
int64_t local_diagonal(const KernelContext& context) {
  const Box& box = context.input_box(0);
  return context.attributes<TriangleAttrs>().diagonal + box.offset[box.ndim() - 2] - box.offset[box.ndim() - 1];
}
void tril_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(tril)(input(context, 0), local_diagonal(context)));
}
void triu_kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(triu)(input(context, 0), local_diagonal(context)));
}
#endif

template <Tensor (*kFunction)(const Tensor&, int64_t, Where)>
std::vector<Sample> samples() {
  const auto call = [](int64_t diagonal) {
    return single([diagonal](const auto& in) { return kFunction(in[0], diagonal, Where::current()); });
  };
  return {{.name = "uneven", .inputs = {{{5, 3}}}, .call = call(0)},
          {.name = "batch, above, float64", .inputs = {{{2, 5, 7}, kFloat64}}, .call = call(2)},
          {.name = "below, integers", .inputs = {{{7, 5}, kInt64, SampleFill::kIota, 0, false}}, .call = call(-1)},
          {.name = "size 1", .inputs = {{{1, 3}}}, .call = call(1)},
          {.name = "empty", .inputs = {{{3, 0}}}, .call = call(0)}};
}

}  // namespace

constinit OperatorDef tril_op = {
    .name = "tril",
    .signature = "tril(x, diagonal) -> Tensor",
    .attributes = attribute_codec<TriangleAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(tril_kernel),
    .gradient = tril_gradient,
    .samples = samples<tril>,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef triu_op = {
    .name = "triu",
    .signature = "triu(x, diagonal) -> Tensor",
    .attributes = attribute_codec<TriangleAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(triu_kernel),
    .gradient = triu_gradient,
    .samples = samples<triu>,
    .linear_in = "x",
    .saved_inputs = 0,
};

Tensor tril(const Tensor& x, int64_t diagonal, Where where) {
  return record(tril_op, TriangleAttrs{diagonal}, {&x}, where);
}
Tensor triu(const Tensor& x, int64_t diagonal, Where where) {
  return record(triu_op, TriangleAttrs{diagonal}, {&x}, where);
}

}  // namespace dtorch
