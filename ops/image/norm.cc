// The local parts of batch_norm and group_norm. With s the group of an element's channel: norm_sums and norm_squares
// give sum x and sum (x - mean[s])^2 of every group in float64, Partial(sum) over sharded dims that the groups span;
// norm_apply gives y = (x - mean[s]) r[s] w + b, r = 1 / sqrt(variance + eps). Gradients, with n elements a group:
//   dx = r (g w - (sum g w + (x - mean) r^2 sum g w (x - mean)) / n)     (norm_grad_sums, norm_input_grad)
//   dw = sum g (x - mean) r, db = sum g                                  (norm_weight_grad)
// where the statistics don't depend on x, dx = r g w. Formula: Ioffe and Szegedy, arXiv:1502.03167.
#include "ops/image/norm.h"

#include <algorithm>
#include <cmath>

#include "ops/image/norm_kernels.h"
#include "ops/nn/operators.h"

namespace dtorch {
namespace image {
namespace {

constexpr int16_t kBatch = 1, kChannel = 2, kSpace = 3;

Shape statistics_shape(const InferContext& context, size_t x) {
  const auto& a = context.attributes<NormAttrs>();
  return a.over_batch ? Shape{a.groups} : Shape{context.shape(x)[0], a.groups};
}
std::vector<OutputMeta> statistics_infer(const InferContext& context) {
  return {{statistics_shape(context, 0), kFloat64}};
}
std::vector<OutputMeta> apply_infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }
std::vector<OutputMeta> grad_sums_infer(const InferContext& context) {
  const Shape shape = statistics_shape(context, 0);
  return {{shape, kFloat64}, {shape, kFloat64}};
}
std::vector<OutputMeta> weight_grad_infer(const InferContext& context) {
  const Shape shape = {context.shape(0)[1]};
  return {{shape, context.dtype(0)}, {shape, context.dtype(0)}};
}

struct NormLetters {
  Letters x, statistics, channels = {kChannel};
};
NormLetters letters_of(const InferContext& context) {
  const auto& a = context.attributes<NormAttrs>();
  NormLetters letters{{kBatch, kChannel}, {}};
  for (int64_t d = 2; d < context.shape(0).ndim(); ++d) letters.x.push_back(static_cast<int16_t>(kSpace + d - 2));
  if (!a.over_batch) letters.statistics.push_back(kBatch);
  letters.statistics.push_back(a.whole_groups ? kChannel : kNoLetter);
  return letters;
}

Rule sums_rule(const InferContext& context, std::span<const OutputMeta>) {
  const NormLetters l = letters_of(context);
  return letters_rule({l.x}, {l.statistics}, {{0}});
}
Rule squares_rule(const InferContext& context, std::span<const OutputMeta>) {
  const NormLetters l = letters_of(context);
  return letters_rule({l.x, l.statistics}, {l.statistics}, {});
}
// (x, mean, variance[, weight][, bias])
Rule apply_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& a = context.attributes<NormAttrs>();
  const NormLetters l = letters_of(context);
  std::vector<Letters> in = {l.x, l.statistics, l.statistics};
  std::vector<size_t> with_x = {0, 1}, with_weight;
  if (a.has_weight) {
    with_weight.push_back(in.size());
    in.push_back(l.channels);
  }
  if (a.has_bias) {
    with_x.push_back(in.size());
    with_weight.push_back(in.size());
    in.push_back(l.channels);
  }
  std::vector<std::vector<size_t>> linear = {with_x};
  if (a.has_weight) linear.push_back(with_weight);
  return letters_rule(in, {l.x}, linear);
}
// (g, x, mean[, weight])
Rule grad_sums_rule(const InferContext& context, std::span<const OutputMeta>) {
  const NormLetters l = letters_of(context);
  std::vector<Letters> in = {l.x, l.x, l.statistics};
  if (context.inputs.size() == 4) in.push_back(l.channels);
  return letters_rule(in, {l.statistics, l.statistics}, {{0}});
}
// (g, x, mean, variance[, sum g w, sum g w (x - mean)][, weight])
Rule input_grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& a = context.attributes<NormAttrs>();
  const NormLetters l = letters_of(context);
  std::vector<Letters> in = {l.x, l.x};
  in.resize(a.moving ? 6 : 4, l.statistics);
  if (a.has_weight) in.push_back(l.channels);
  return letters_rule(in, {l.x}, {a.moving ? std::vector<size_t>{0, 4, 5} : std::vector<size_t>{0}});
}
// (g, x, mean, variance)
Rule weight_grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const NormLetters l = letters_of(context);
  return letters_rule({l.x, l.x, l.statistics, l.statistics}, {l.channels, l.channels}, {{0}});
}

}  // namespace
}  // namespace image

constinit OperatorDef norm_sums_op = {
    .name = "norm_sums",
    .signature = "batch_norm/group_norm/instance_norm(x, groups) -> sums",
    .attributes = attribute_codec<image::NormAttrs>(),
    .infer = image::statistics_infer,
    .rule = image::sums_rule,
    .kernel = image::norm_sums_kernel,
    .linear_in = "x",
};
constinit OperatorDef norm_squares_op = {
    .name = "norm_squares",
    .signature = "batch_norm/group_norm/instance_norm(x, mean, groups) -> squared deviations",
    .attributes = attribute_codec<image::NormAttrs>(),
    .infer = image::statistics_infer,
    .rule = image::squares_rule,
    .kernel = image::norm_squares_kernel,
};
constinit OperatorDef norm_apply_op = {
    .name = "norm_apply",
    .signature = "batch_norm/group_norm/instance_norm(x, mean, variance, weight, bias) -> Tensor",
    .attributes = attribute_codec<image::NormAttrs>(),
    .infer = image::apply_infer,
    .rule = image::apply_rule,
    .kernel = image::norm_apply_kernel,
    .linear_in = "(x, mean, bias), (weight, bias)",
};
constinit OperatorDef norm_grad_sums_op = {
    .name = "norm_grad_sums",
    .signature = "batch_norm/group_norm/instance_norm(g, x, mean, weight) -> sums of the gradient",
    .attributes = attribute_codec<image::NormAttrs>(),
    .infer = image::grad_sums_infer,
    .rule = image::grad_sums_rule,
    .kernel = image::norm_grad_sums_kernel,
    .linear_in = "g",
};
constinit OperatorDef norm_input_grad_op = {
    .name = "norm_input_grad",
    .signature = "batch_norm/group_norm/instance_norm(g, x, mean, variance, sums, weight) -> dx",
    .attributes = attribute_codec<image::NormAttrs>(),
    .infer = image::apply_infer,
    .rule = image::input_grad_rule,
    .kernel = image::norm_input_grad_kernel,
    .linear_in = "(g, sums)",
};
constinit OperatorDef norm_weight_grad_op = {
    .name = "norm_weight_grad",
    .signature = "batch_norm/group_norm/instance_norm(g, x, mean, variance) -> (dweight, dbias)",
    .attributes = attribute_codec<image::NormAttrs>(),
    .infer = image::weight_grad_infer,
    .rule = image::weight_grad_rule,
    .kernel = image::norm_weight_grad_kernel,
    .linear_in = "g",
};

}  // namespace dtorch
