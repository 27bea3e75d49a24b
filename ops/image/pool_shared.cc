// Inference, placement rows and windows of pooling.
#include <algorithm>

#include "ops/image/halo.h"
#include "ops/image/pool.h"
#include "ops/nn/operators.h"

namespace dtorch::image {
namespace {

// Dims before the spatial ones, then these, where they are cut.
Letters letters_of(const InferContext& context) {
  const auto& a = context.attributes<PoolAttrs>();
  const int64_t ndim = context.shape(0).ndim(), before = ndim - static_cast<int64_t>(a.num_spatial());
  Letters letters;
  for (int64_t d = 0; d < ndim; ++d) {
    const bool blocked = d >= before && a.cut[static_cast<size_t>(d - before)] == 0;
    letters.push_back(blocked ? kNoLetter : static_cast<int16_t>(d + 1));
  }
  return letters;
}

std::vector<OutputMeta> with_space(const InferContext& context, const std::vector<int64_t>& space) {
  Shape shape(context.shape(0).begin(), context.shape(0).end() - static_cast<int64_t>(space.size()));
  for (int64_t size : space) shape.push_back(size);
  return {{shape, context.dtype(0)}};
}

}  // namespace

bool PoolAttrs::any_cut() const {
  return std::ranges::any_of(cut, [](int64_t c) { return c != 0; });
}

std::vector<OutputMeta> pool_infer(const InferContext& context) {
  nn_ops::need_floating(context, 0);
  return with_space(context, context.attributes<PoolAttrs>().out);
}
std::vector<OutputMeta> pool_grad_infer(const InferContext& context) {
  return with_space(context, context.attributes<PoolAttrs>().in);
}

Rule mean_pool_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters letters = letters_of(context);
  return letters_rule({letters}, {letters}, {{0}});
}
Rule max_pool_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters letters = letters_of(context);
  Rule rule = letters_rule({letters}, {letters}, {});
  rule.rows.push_back({{Partial(kMax)}, {Partial(kMax)}});
  return rule;
}
Rule pool_grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters letters = letters_of(context);
  return letters_rule(std::vector<Letters>(context.inputs.size(), letters), {letters}, {{0}});
}

Tensor with_windows(const char* op, Tensor x, PoolAttrs* attributes, double outside, const Where& where) {
  PoolAttrs& a = *attributes;
  a.cut.assign(a.num_spatial(), 0);
  for (size_t s = 0; s < a.num_spatial(); ++s) {
    const int64_t dim = a.dim_of(s, x.ndim());
    if (x.layout().axes_of_dim(dim).empty()) continue;
    const auto rows = [&](int64_t o) {
      const int64_t first = o * a.stride[s] - a.padding[s];
      return std::pair(first, first + a.extent(s));
    };
    x = with_halo(op, x, dim, {a.out[s], rows}, outside, where);
    a.cut[s] = 1;
    a.in[s] = x.shape()[dim];
  }
  return x;
}

#if DTORCH_WITH_KERNELS
std::vector<int64_t> plane(const std::vector<int64_t>& of, int64_t first) {
  return of.size() == 1 ? std::vector<int64_t>{first, of[0]} : of;
}
at::Tensor to_plane(const PoolAttrs& attributes, const at::Tensor& x) {
  return attributes.num_spatial() == 1 ? x.unsqueeze(-2) : x;
}
at::Tensor from_plane(const PoolAttrs& attributes, const at::Tensor& x) {
  return attributes.num_spatial() == 1 ? x.squeeze(-2) : x;
}
at::Tensor read_part(const PoolAttrs& attributes, at::Tensor x, at::IntArrayRef out_sizes) {
  for (size_t s = 0; s < attributes.num_spatial(); ++s) {
    if (attributes.cut[s] == 0) continue;
    const int64_t out = out_sizes[static_cast<size_t>(attributes.dim_of(s, out_sizes.size()))];
    x = x.narrow(attributes.dim_of(s, x.dim()), 0, (out - 1) * attributes.stride[s] + attributes.extent(s));
  }
  return x;
}
#endif

}  // namespace dtorch::image
