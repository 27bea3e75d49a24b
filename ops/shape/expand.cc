// expand(x, shape): dims of size 1 grow, new dims are added in front, by views with stride 0. Layouts: kept dims keep
// their shards; a dim that grows must not be sharded; Partial passes. Gradient: g summed over what was expanded.
#include "ops/math/functions.h"
#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/expand_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct ExpandAttrs {
  Shape shape;
  template <class V>
  void fields(V& v) {
    v("shape", shape);
  }
};

std::vector<OutputMeta> expand_infer(const InferContext& context) {
  return {{context.attributes<ExpandAttrs>().shape, context.dtype(0)}};
}

Rule expand_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape& in = context.shape(0);
  const Shape& out = outputs[0].global_shape;
  const int64_t added = out.ndim() - in.ndim();
  std::vector<int64_t> from;
  for (int64_t d = 0; d < out.ndim(); ++d) from.push_back(d >= added && in[d - added] == out[d] ? d - added : -1);
  return dim_map_rule(in.ndim(), from);
}

std::vector<Tensor> expand_gradient(const GradientContext& context) {
  const Shape& in = context.input_meta(0).global_shape;
  Tensor g = context.grad_output(0);
  const int64_t added = g.ndim() - in.ndim();
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < g.ndim(); ++d) {
    if (d < added || in[d - added] != g.shape()[d]) dims.push_back(d);
  }
  if (dims.empty()) return {g};
  g = sum_pending(g, dims, /*keepdim=*/true);
  for (int64_t d = 0; d < added; ++d) g = squeeze(g, 0);
  return {g};
}

#if DTORCH_WITH_KERNELS
void expand_kernel(KernelContext& context) {
  set_output(context, 0, at::native::expand(input(context, 0), output_sizes(context, 0)));
}
#endif

std::vector<Sample> expand_samples() {
  return {{.name = "a dim grows",
           .inputs = {{{5, 1, 3}}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{expand(in[0], {5, 4, 3})};
               }},
          {.name = "new dims",
           .inputs = {{{3, 1}, kFloat64}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{expand(in[0], {2, -1, 4})};
               }},
          {.name = "empty", .inputs = {{{0, 1}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{expand(in[0], {0, 3})};
           }}};
}

}  // namespace

constinit OperatorDef expand_op = {
    .name = "expand",
    .signature = "expand(x, shape) -> Tensor",
    .attributes = attribute_codec<ExpandAttrs>(),
    .infer = expand_infer,
    .rule = expand_rule,
    .kernel = DTORCH_KERNEL(expand_kernel),
    .gradient = expand_gradient,
    .samples = expand_samples,
    .linear_in = "x",
    .saved_inputs = 0,
};

Tensor expand(const Tensor& x, const std::vector<int64_t>& shape, Where where) {
  const Shape& in = x.shape();
  Shape out(shape.begin(), shape.end());
  const int64_t added = out.ndim() - in.ndim();
  bool legal = added >= 0;
  for (int64_t d = 0; legal && d < out.ndim(); ++d) {
    if (out[d] == -1 && d >= added) out[d] = in[d - added];
    legal = out[d] >= 0 && (d < added || in[d - added] == out[d] || in[d - added] == 1);
  }
  if (!legal) {
    throw at_line(
        ShapeError("[expand] " + in.str() + " can't be expanded to " + Shape(shape.begin(), shape.end()).str() +
                   ": dims are aligned at the right, only dims of size 1 grow, and -1 keeps a size"),
        where);
  }
  return record(expand_op, ExpandAttrs{out}, {&x}, where);
}
Tensor Tensor::expand(const std::vector<int64_t>& shape, Where where) const {
  return dtorch::expand(*this, shape, where);
}

}  // namespace dtorch
