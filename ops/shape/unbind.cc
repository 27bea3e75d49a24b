// unbind(x, dim): one view an index of the dim, without it. Layouts: other dims keep their shards, Partial passes; a
// sharded dim is refused (an index would lie on some devices only). Gradient: the indices' gradients stacked, zeros for
// those without one.
#include "ops/create/functions.h"
#include "ops/math/operators.h"
#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/unbind_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

struct UnbindAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const int64_t dim = context.attributes<UnbindAttrs>().dim;
  Shape shape = context.shape(0);
  const int64_t size = shape[dim];
  shape.erase(shape.begin() + dim);
  return std::vector<OutputMeta>(static_cast<size_t>(size), {shape, context.dtype(0)});
}

Rule rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const int64_t dim = context.attributes<UnbindAttrs>().dim, ndim = context.shape(0).ndim();
  std::vector<int64_t> from;
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != dim) from.push_back(d);
  }
  Rule rule = shaping::dim_map_rule(ndim, from);
  for (Row& row : rule.rows) row.outputs.assign(outputs.size(), row.outputs[0]);
  rule.output_letters.assign(outputs.size(), rule.output_letters[0]);
  return rule;
}

std::vector<Tensor> gradient(const GradientContext& context) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < context.num_outputs(); ++i) {
    const TensorMeta& meta = context.output_meta(i);
    const Tensor& g = context.grad_output(i);
    parts.push_back(g.defined() ? math::place_gradient(g, meta)
                                : full_with_layout(meta.global_shape, 0, meta.dtype, meta.layout.without_partial()));
  }
  return {math::place_gradient(stack(parts, context.attributes<UnbindAttrs>().dim), context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  std::vector<at::Tensor> parts = at::native::unbind(input(context, 0), context.attributes<UnbindAttrs>().dim);
  for (size_t i = 0; i < parts.size(); ++i) set_output(context, i, std::move(parts[i]));
}
#endif

std::vector<Sample> samples() {
  return {{.name = "uneven", .inputs = {{{3, 5}}}, .call = [](const std::vector<Tensor>& in) { return unbind(in[0]); }},
          {.name = "middle dim, size 1", .inputs = {{{5, 2, 1}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
             return unbind(in[0], 1);
           }}};
}

}  // namespace

constinit OperatorDef unbind_op = {
    .name = "unbind",
    .signature = "unbind(x, dim) -> [Tensor]",
    .attributes = attribute_codec<UnbindAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
    .linear_in = "x",
    .saved_inputs = 0,
};

std::vector<Tensor> unbind(const Tensor& x, int64_t dim, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "unbind", where);
  if (x.shape()[d] == 0) return {};
  return record_list(unbind_op, UnbindAttrs{d}, {x}, static_cast<size_t>(x.shape()[d]), where);
}

}  // namespace dtorch
