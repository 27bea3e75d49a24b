// Inference and placement rows of convolution and its gradients. As a formula over channels, y[n, k, s] = sum over c of
// x[n, c, .] w[k, c]: sharding c gives Partial(sum). With groups the channels of x, w and y are one letter, where every
// part of all three is made of the same whole groups.
#include "ops/image/conv.h"

#include <algorithm>

#include "ops/image/halo.h"
#include "ops/nn/operators.h"

namespace dtorch::image {
namespace {

constexpr int16_t kBatch = 1, kOut = 2, kIn = 3, kSpace = 4;

// Which operand has channels in which dim.
struct Channels {
  size_t input;
  int64_t dim;
};

// Axes that shard the channels of one of the operands, as one list; where none does, all axes of the mesh, so that what
// the matcher suggests is legal.
AxisList channel_axes(const InferContext& context, std::span<const Channels> operands) {
  AxisList axes;
  const auto add = [&](int8_t axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  };
  for (const Channels& operand : operands) {
    for (int8_t axis : context.inputs[operand.input]->layout.axes_of_dim(operand.dim)) add(axis);
  }
  if (!axes.empty()) return axes;
  const Layout& layout = context.inputs[0]->layout;
  for (int64_t axis = 0; axis < layout.placements().size(); ++axis) {
    if (layout.mesh().shape()[axis] > 1) add(static_cast<int8_t>(axis));
  }
  return axes;
}

// Whether parts of in_channels and of out_channels over these axes are the same whole groups.
bool groups_stay_whole(const ConvAttrs& a, const DeviceMesh& mesh, const AxisList& axes) {
  Placements placements(mesh.num_axes(), Replicate());
  for (int8_t axis : axes) placements[axis] = Shard(0);
  const Layout layout(mesh, placements, 1, axes);
  const std::vector<int64_t> in = part_offsets(layout, 0, a.in_channels), out = part_offsets(layout, 0, a.out_channels);
  for (size_t part = 0; part < in.size(); ++part) {
    const int64_t group = in[part] * a.groups / a.in_channels;
    if (group * a.in_channels != in[part] * a.groups || group * a.out_channels != out[part] * a.groups) return false;
  }
  return true;
}

struct ConvLetters {
  Letters x, weight, bias, y;
};
ConvLetters letters_of(const InferContext& context, const ConvAttrs& a, std::span<const Channels> operands) {
  const DeviceMesh& mesh = context.inputs[0]->layout.mesh();
  const bool one_group = a.groups == 1;
  const bool paired = one_group || groups_stay_whole(a, mesh, channel_axes(context, operands));
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
  const Channels operands[] = {{0, a.channel_dim()}, {1, 0}, {context.inputs.size() - 1, 0}};
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
  const Channels operands[] = {{0, a.channel_dim()}, {1, 0}};
  const ConvLetters l = letters_of(context, a, operands);
  return letters_rule({l.y, l.weight}, {l.x}, {{0}, {1}});
}

Rule conv_weight_grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& a = context.attributes<ConvAttrs>();
  const Channels operands[] = {{0, a.channel_dim()}, {1, a.channel_dim()}};
  const ConvLetters l = letters_of(context, a, operands);
  return letters_rule({l.y, l.x}, {l.weight}, {{0}, {1}});
}

}  // namespace dtorch::image
