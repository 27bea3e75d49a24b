// unsqueeze(x, dim) adds a dim of size 1, squeeze(x, dims) removes dims of size 1 (not sharded ones: a part without the
// only element has nothing to keep). Views. Layouts: shards stay with their dims, Partial passes. Gradients: each
// other.
#include <algorithm>

#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/squeeze_native.h>
#include <ATen/ops/unsqueeze_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct DimAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};
struct DimsAttrs {
  std::vector<int64_t> dims;  // ascending
  template <class V>
  void fields(V& v) {
    v("dims", dims);
  }
};

std::vector<OutputMeta> unsqueeze_infer(const InferContext& context) {
  Shape shape = context.shape(0);
  shape.insert(shape.begin() + context.attributes<DimAttrs>().dim, 1);
  return {{shape, context.dtype(0)}};
}
std::vector<OutputMeta> squeeze_infer(const InferContext& context) {
  const auto& dims = context.attributes<DimsAttrs>().dims;
  Shape shape;
  for (int64_t d = 0; d < context.shape(0).ndim(); ++d) {
    if (!std::ranges::binary_search(dims, d)) shape.push_back(context.shape(0)[d]);
  }
  return {{shape, context.dtype(0)}};
}

Rule unsqueeze_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int64_t dim = context.attributes<DimAttrs>().dim;
  std::vector<int64_t> from;
  for (int64_t d = 0; d < ndim + 1; ++d) from.push_back(d == dim ? -1 : d < dim ? d : d - 1);
  return dim_map_rule(ndim, from);
}
Rule squeeze_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  std::vector<int64_t> from;
  for (int64_t d = 0; d < ndim; ++d) {
    if (!std::ranges::binary_search(context.attributes<DimsAttrs>().dims, d)) from.push_back(d);
  }
  return dim_map_rule(ndim, from);
}

std::vector<Tensor> unsqueeze_gradient(const GradientContext& context) {
  return {squeeze(context.grad_output(0), context.attributes<DimAttrs>().dim)};
}
std::vector<Tensor> squeeze_gradient(const GradientContext& context) {
  Tensor g = context.grad_output(0);
  for (int64_t d : context.attributes<DimsAttrs>().dims) g = unsqueeze(g, d);
  return {g};
}

#if DTORCH_WITH_KERNELS
void unsqueeze_kernel(KernelContext& context) {
  set_output(context, 0, at::native::unsqueeze(input(context, 0), context.attributes<DimAttrs>().dim));
}
void squeeze_kernel(KernelContext& context) {
  set_output(context, 0, at::native::squeeze(input(context, 0), context.attributes<DimsAttrs>().dims));
}
#endif

std::vector<Sample> unsqueeze_samples() {
  return {{.name = "in the middle",
           .inputs = {{{5, 3}}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{unsqueeze(in[0], 1)}; }},
          {.name = "at the end, empty dim", .inputs = {{{0, 3}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{unsqueeze(in[0], -1)};
           }}};
}
std::vector<Sample> squeeze_samples() {
  return {{.name = "one dim",
           .inputs = {{{5, 1, 3}}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{squeeze(in[0], 1)}; }},
          {.name = "all dims", .inputs = {{{1, 4, 1}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{squeeze(in[0])};
           }}};
}

}  // namespace

constinit OperatorDef unsqueeze_op = {
    .name = "unsqueeze",
    .signature = "unsqueeze(x, dim) -> Tensor",
    .attributes = attribute_codec<DimAttrs>(),
    .infer = unsqueeze_infer,
    .rule = unsqueeze_rule,
    .kernel = DTORCH_KERNEL(unsqueeze_kernel),
    .gradient = unsqueeze_gradient,
    .samples = unsqueeze_samples,
    .linear_in = "x",
    .saved_inputs = 0,
};

constinit OperatorDef squeeze_op = {
    .name = "squeeze",
    .signature = "squeeze(x, dim) -> Tensor",
    .attributes = attribute_codec<DimsAttrs>(),
    .infer = squeeze_infer,
    .rule = squeeze_rule,
    .kernel = DTORCH_KERNEL(squeeze_kernel),
    .gradient = squeeze_gradient,
    .samples = squeeze_samples,
    .linear_in = "x",
    .saved_inputs = 0,
};

Tensor unsqueeze(const Tensor& x, int64_t dim, Where where) {
  return record(unsqueeze_op, DimAttrs{normalize_dim(dim, x.ndim() + 1, "unsqueeze", where)}, {&x}, where);
}

Tensor squeeze(const Tensor& x, std::optional<int64_t> dim, Where where) {
  DimsAttrs attributes;
  if (!dim) {
    for (int64_t d = 0; d < x.ndim(); ++d) {
      if (x.shape()[d] == 1) attributes.dims.push_back(d);
    }
  } else if (x.ndim() > 0 || (*dim != 0 && *dim != -1)) {
    const int64_t d = normalize_dim(*dim, x.ndim(), "squeeze", where);
    if (x.shape()[d] == 1) attributes.dims.push_back(d);
  }
  return attributes.dims.empty() ? x : record(squeeze_op, attributes, {&x}, where);
}

Tensor Tensor::unsqueeze(int64_t dim, Where where) const { return dtorch::unsqueeze(*this, dim, where); }
Tensor Tensor::squeeze(std::optional<int64_t> dim, Where where) const { return dtorch::squeeze(*this, dim, where); }

}  // namespace dtorch
