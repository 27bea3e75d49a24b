// Inference, placement rows and windows of pooling.
#include <algorithm>

#include "ops/image/halo.h"
#include "ops/image/pool.h"
#include "ops/nn/operators.h"

namespace dtorch::image {
namespace {

constexpr int16_t kBatch = 1, kChannel = 2, kSpace = 3;

Letters letters_of(const PoolAttrs& a) {
  Letters letters = {kBatch, kChannel};
  for (size_t s = 0; s < a.cut.size(); ++s) {
    letters.push_back(a.cut[s] != 0 ? static_cast<int16_t>(kSpace + s) : kNoLetter);
  }
  return letters;
}

std::vector<OutputMeta> with_space(const InferContext& context, const std::vector<int64_t>& space) {
  Shape shape = {context.shape(0)[0], context.shape(0)[1]};
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
  const Letters letters = letters_of(context.attributes<PoolAttrs>());
  return letters_rule({letters}, {letters}, {{0}});
}
Rule max_pool_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters letters = letters_of(context.attributes<PoolAttrs>());
  Rule rule = letters_rule({letters}, {letters}, {});
  rule.rows.push_back({{Partial(kMax)}, {Partial(kMax)}});
  return rule;
}
Rule pool_grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters letters = letters_of(context.attributes<PoolAttrs>());
  return letters_rule(std::vector<Letters>(context.inputs.size(), letters), {letters}, {{0}});
}

Tensor with_windows(const char* op, Tensor x, PoolAttrs* attributes, double outside, const Where& where) {
  PoolAttrs& a = *attributes;
  a.cut.assign(a.num_spatial(), 0);
  for (size_t s = 0; s < a.num_spatial(); ++s) {
    const int64_t dim = static_cast<int64_t>(s) + 2;
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
  return attributes.num_spatial() == 1 ? x.unsqueeze(2) : x;
}
at::Tensor from_plane(const PoolAttrs& attributes, const at::Tensor& x) {
  return attributes.num_spatial() == 1 ? x.squeeze(2) : x;
}
at::Tensor read_part(const PoolAttrs& attributes, at::Tensor x, at::IntArrayRef out_sizes) {
  const size_t n = attributes.num_spatial();
  for (size_t s = 0; s < n; ++s) {
    if (attributes.cut[s] == 0) continue;
    const int64_t length = (out_sizes[s + 2] - 1) * attributes.stride[s] + attributes.extent(s);
    x = x.narrow(static_cast<int64_t>(s + 4 - n), 0, length);
  }
  return x;
}
#endif

}  // namespace dtorch::image
