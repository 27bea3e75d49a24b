// cross(a, b, dim): the vector product along a dim of size 3, with broadcasting. Layouts: other dims keep their shards;
// the dim itself must not be sharded; linear in each operand. Gradients: b x g and g x a, summed over broadcast dims.
#include <algorithm>

#include "ops/create/aten_call.h"
#include "ops/math/contractions.h"
#include "ops/math/kernels.h"
#include "ops/math/products.h"
#include "ops/shape/composed.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/linalg_cross.h>
#include <ATen/ops/linalg_cross_cpu_dispatch.h>
#endif

namespace dtorch {
namespace {

using namespace math;
using shaping::single;

struct CrossAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const int64_t dim = context.attributes<CrossAttrs>().dim;
  const Shape &a = context.shape(0), &b = context.shape(1);
  if (a.ndim() != b.ndim() || a[dim] != 3 || b[dim] != 3) {
    throw ShapeError("[cross] operands are " + a.str() + " and " + b.str() +
                     "; needed are equally many dims and size 3 in dim " + std::to_string(dim));
  }
  refuse_mixed_dtypes(context);
  return {{broadcast_inputs(context), context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const int64_t dim = context.attributes<CrossAttrs>().dim;
  Rule rule = elementwise(context, outputs, Linear::kInEach);
  std::erase_if(rule.rows, [&](const Row& row) { return row.outputs[0].is_shard(dim); });
  for (Letters& letters : rule.input_letters) letters[dim] = kNoLetter;
  rule.output_letters[0][dim] = kNoLetter;
  return rule;
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const int64_t dim = context.attributes<CrossAttrs>().dim;
  const Tensor& g = context.grad_output(0);
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) gradients[0] = fit_gradient(cross(context.input(1), g, dim), context.input_meta(0));
  if (context.needs_grad(1)) gradients[1] = fit_gradient(cross(g, context.input(0), dim), context.input_meta(1));
  return gradients;
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  set_output(context, 0,
             DTORCH_ATEN(linalg_cross)(input(context, 0), input(context, 1), context.attributes<CrossAttrs>().dim));
}
#endif

std::vector<Sample> samples() {
  return {{.name = "uneven", .inputs = {normal({5, 3}), normal({5, 3})}, .call = single([](const auto& in) {
                                                                           return cross(in[0], in[1]);
                                                                         })},
          {.name = "broadcast, size 1",
           .inputs = {normal({3, 1, 5}, kFloat64), normal({3, 2, 1}, kFloat64)},
           .call = single([](const auto& in) { return cross(in[0], in[1], 0); })},
          {.name = "integers, empty",
           .inputs = {integers({0, 3}), integers({0, 3})},
           .call = single([](const auto& in) { return cross(in[0], in[1], -1); })}};
}

}  // namespace

constinit OperatorDef cross_op = {
    .name = "cross",
    .signature = "cross(a, b, dim) -> Tensor",
    .attributes = attribute_codec<CrossAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
    .linear_in = "each",
    .saved_inputs = 3,
};

Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim, Where where) {
  if (dim) return record(cross_op, CrossAttrs{normalize_dim(*dim, a.ndim(), "cross", where)}, {&a, &b}, where);
  const auto first = std::ranges::find(a.shape(), 3);
  if (first == a.shape().end()) {
    throw at_line(ShapeError("[cross] no dim of " + a.shape().str() + " has size 3"), where);
  }
  return record(cross_op, CrossAttrs{first - a.shape().begin()}, {&a, &b}, where);
}

}  // namespace dtorch
