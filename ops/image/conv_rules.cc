// Inference and placement rows of convolution and its gradients. As a formula over channels, y[n, k, s] = sum over c of
// x[n, c, .] w[k, c]: sharding c gives Partial(sum). With groups the channels of x, w and y are one letter, where every
// part of all three is made of the same whole groups.
#include "ops/image/conv.h"

#include "ops/nn/operators.h"

namespace dtorch::image {
namespace {

constexpr int16_t kBatch = 1, kOut = 2, kIn = 3, kSpace = 4;

struct ConvLetters {
  Letters x, weight, bias, y;
};
ConvLetters letters_of(const InferContext& context, const ConvAttrs& a, std::span<const OperandDim> operands) {
  const DeviceMesh& mesh = context.inputs[0]->layout.mesh();
  const bool one_group = a.groups == 1;
  const bool paired =
      one_group || groups_stay_whole(mesh, sharding_axes(context, operands), a.groups, a.in_channels, a.out_channels);
  const int16_t out = paired ? kOut : kNoLetter, in = one_group ? kIn : out,
                within = one_group ? (a.transposed ? kOut : kIn) : kNoLetter;
  ConvLetters letters{{kBatch, in}, {a.transposed ? in : out, within}, {out}, {kBatch, out}};
  for (size_t s = 0; s < a.kernel.size(); ++s) {
    const int16_t space = a.cut[s] != 0 ? static_cast<int16_t>(kSpace + s) : kNoLetter;
    letters.x.push_back(space);
    letters.y.push_back(space);
    letters.weight.push_back(kNoLetter);
  }
  if (!a.batched) {
    letters.x.erase(letters.x.begin());
    letters.y.erase(letters.y.begin());
  }
  return letters;
}

Shape with_space(int64_t first, int64_t second, const std::vector<int64_t>& space) {
  Shape shape = {first, second};
  for (int64_t size : space) shape.push_back(size);
  return shape;
}

// Input 0 with other channels and spatial sizes.
Shape like_x(const InferContext& context, const ConvAttrs& a, int64_t channels, const std::vector<int64_t>& space) {
  Shape shape = with_space(context.shape(0)[0], channels, space);
  if (!a.batched) shape.erase(shape.begin());
  return shape;
}

}  // namespace

std::vector<OutputMeta> conv_infer(const InferContext& context) {
  const auto& a = context.attributes<ConvAttrs>();
  nn_ops::need_floating(context, 0);
  for (size_t i = 1; i < context.inputs.size(); ++i) nn_ops::need_same_dtype(context, 0, i);
  return {{like_x(context, a, a.out_channels, a.out), context.dtype(0)}};
}

// (g, weight) -> gradient of x
std::vector<OutputMeta> conv_input_grad_infer(const InferContext& context) {
  const auto& a = context.attributes<ConvAttrs>();
  return {{like_x(context, a, a.in_channels, a.in), context.dtype(0)}};
}

// (g, x) -> gradient of weight
std::vector<OutputMeta> conv_weight_grad_infer(const InferContext& context) {
  const auto& a = context.attributes<ConvAttrs>();
  const int64_t first = a.transposed ? a.in_channels : a.out_channels;
  const int64_t second = (a.transposed ? a.out_channels : a.in_channels) / a.groups;
  return {{with_space(first, second, a.kernel), context.dtype(0)}};
}

Rule conv_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& a = context.attributes<ConvAttrs>();
  const OperandDim operands[] = {{0, a.channel_dim()}, {1, 0}, {context.inputs.size() - 1, 0}};
  const ConvLetters l = letters_of(context, a, std::span(operands, a.has_bias ? 3 : 2));
  if (!a.has_bias) return letters_rule({l.x, l.weight}, {l.y}, {{0}, {1}});
  Rule rule = letters_rule({l.x, l.weight, l.bias}, {l.y}, {{0, 2}, {1, 2}});
  // Added once a part of the sum.
  for (Row& row : rule.rows) {
    if (row.outputs[0].is_partial() && row.inputs[2].is_replicate()) row.inputs[2] = Partial();
  }
  return rule;
}

Rule conv_input_grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& a = context.attributes<ConvAttrs>();
  const OperandDim operands[] = {{0, a.channel_dim()}, {1, 0}};
  const ConvLetters l = letters_of(context, a, operands);
  return letters_rule({l.y, l.weight}, {l.x}, {{0}, {1}});
}

Rule conv_weight_grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& a = context.attributes<ConvAttrs>();
  const OperandDim operands[] = {{0, a.channel_dim()}, {1, a.channel_dim()}};
  const ConvLetters l = letters_of(context, a, operands);
  return letters_rule({l.y, l.x}, {l.weight}, {{0}, {1}});
}

}  // namespace dtorch::image
