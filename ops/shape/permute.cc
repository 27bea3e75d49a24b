// permute(x, dims), transpose, t: dim d of the result is dim dims[d] of x. Views. Layouts: shards move with their dims;
// Partial passes. Gradient: the inverse permutation of g.
#include <numeric>

#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/permute_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

struct PermuteAttrs {
  std::vector<int64_t> dims;  // not negative
  template <class V>
  void fields(V& v) {
    v("dims", dims);
  }
};

std::vector<OutputMeta> permute_infer(const InferContext& context) {
  Shape shape;
  for (int64_t d : context.attributes<PermuteAttrs>().dims) shape.push_back(context.shape(0)[d]);
  return {{shape, context.dtype(0)}};
}

Rule permute_op_rule(const InferContext& context, std::span<const OutputMeta>) {
  return permute_rule(context.attributes<PermuteAttrs>().dims);
}

std::vector<Tensor> permute_gradient(const GradientContext& context) {
  const auto& dims = context.attributes<PermuteAttrs>().dims;
  std::vector<int64_t> inverse(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) inverse[static_cast<size_t>(dims[d])] = static_cast<int64_t>(d);
  return {permute(context.grad_output(0), inverse)};
}

#if DTORCH_WITH_KERNELS
void permute_kernel(KernelContext& context) {
  set_output(context, 0, at::native::permute(input(context, 0), context.attributes<PermuteAttrs>().dims));
}
#endif

std::vector<Sample> permute_samples() {
  return {{.name = "three dims",
           .inputs = {{{5, 3, 2}}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{permute(in[0], {2, 0, 1})};
               }},
          {.name = "transpose, size 1",
           .inputs = {{{5, 1}, kFloat64}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{t(in[0])}; }},
          {.name = "empty", .inputs = {{{0, 3, 2}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{transpose(in[0], 0, -1)};
           }}};
}

}  // namespace

constinit OperatorDef permute_op = {
    .name = "permute",
    .signature = "permute(x, dims) -> Tensor",
    .attributes = attribute_codec<PermuteAttrs>(),
    .infer = permute_infer,
    .rule = permute_op_rule,
    .kernel = DTORCH_KERNEL(permute_kernel),
    .gradient = permute_gradient,
    .samples = permute_samples,
    .linear_in = "x",
    .saved_inputs = 0,
};

Tensor permute(const Tensor& x, const std::vector<int64_t>& dims, Where where) {
  PermuteAttrs attributes;
  std::vector<bool> seen(static_cast<size_t>(x.ndim()), false);
  for (int64_t dim : dims) {
    const int64_t d = normalize_dim(dim, x.ndim(), "permute", where);
    if (seen[static_cast<size_t>(d)])
      throw at_line(ShapeError("[permute] dim " + std::to_string(dim) + " stands twice"), where);
    seen[static_cast<size_t>(d)] = true;
    attributes.dims.push_back(d);
  }
  if (static_cast<int64_t>(dims.size()) != x.ndim()) {
    throw at_line(
        ShapeError("[permute] got " + std::to_string(dims.size()) + " dims for a tensor of shape " + x.shape().str()),
        where);
  }
  return record(permute_op, attributes, {&x}, where);
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1, Where where) {
  if (x.ndim() == 0) return x;
  PermuteAttrs attributes;
  attributes.dims.resize(static_cast<size_t>(x.ndim()));
  std::iota(attributes.dims.begin(), attributes.dims.end(), 0);
  std::swap(attributes.dims[static_cast<size_t>(normalize_dim(dim0, x.ndim(), "transpose", where))],
            attributes.dims[static_cast<size_t>(normalize_dim(dim1, x.ndim(), "transpose", where))]);
  return record(permute_op, attributes, {&x}, where);
}

Tensor t(const Tensor& x, Where where) {
  if (x.ndim() > 2)
    throw at_line(ShapeError("[t] needs at most 2 dims, got " + x.shape().str() + "; use transpose or permute"), where);
  return x.ndim() < 2 ? x : transpose(x, 0, 1, where);
}

Tensor Tensor::permute(const std::vector<int64_t>& dims, Where where) const {
  return dtorch::permute(*this, dims, where);
}
Tensor Tensor::transpose(int64_t dim0, int64_t dim1, Where where) const {
  return dtorch::transpose(*this, dim0, dim1, where);
}
Tensor Tensor::t(Where where) const { return dtorch::t(*this, where); }

}  // namespace dtorch
