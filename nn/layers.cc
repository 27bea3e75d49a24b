#include "nn/layers.h"

#include <cmath>

#include "ops/nn/functions.h"
#include "ops/ops.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {
namespace {

Tensor uniform(const Shape& shape, double bound, const LayerOptions& options, const Placements& placements,
               Where where) {
  NoGrad no_grad;
  Tensor unit = rand(shape, {.mesh = options.mesh, .placements = placements, .dtype = options.dtype}, where);
  return unit * (2 * bound) - bound;
}

// Of the bias: sharded where the weight's rows are.
Placements bias_placements(const Placements& weight) {
  Placements out;
  for (const Placement& p : weight) out.push_back(p.is_shard(0) ? Shard(0) : Replicate());
  return out;
}

LayerOptions on_axis(const ParallelOptions& options, const Placement& placement, const Where& where) {
  Placements placements(options.mesh.num_axes(), Replicate());
  placements[options.mesh.axis(options.axis, where)] = placement;
  return {.mesh = options.mesh, .placements = placements, .bias = options.bias, .dtype = options.dtype};
}

// The axis on which `weight` is sharded on `dim`; the layer was made so.
int64_t sharded_axis(const Parameter& weight, int64_t dim) {
  const Placements& placements = weight.layout().placements();
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_shard(dim)) return axis;
  }
  return -1;  // an axis of size 1: everything is Replicate
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, const LayerOptions& options, Where where) {
  SourceScope scope(where);
  double bound = in > 0 ? 1.0 / std::sqrt(static_cast<double>(in)) : 0;
  weight = register_parameter("weight", uniform({out, in}, bound, options, options.placements, where));
  if (options.bias) {
    bias = register_parameter("bias", uniform({out}, bound, options, bias_placements(options.placements), where));
  }
}

Tensor Linear::forward(const Tensor& x, Where where) const {
  SourceScope scope(where);
  return linear(x, weight.use(where), bias.defined() ? bias.use(where) : Tensor(), where);
}

Embedding::Embedding(int64_t count, int64_t dim, const LayerOptions& options, Where where) {
  SourceScope scope(where);
  weight = register_parameter(
      "weight",
      randn({count, dim}, {.mesh = options.mesh, .placements = options.placements, .dtype = options.dtype}, where));
}

Tensor Embedding::forward(const Tensor& ids, Where where) const {
  SourceScope scope(where);
  return embedding(ids, weight.use(where), where);
}

RMSNorm::RMSNorm(int64_t dim, double epsilon, const LayerOptions& options, Where where) : eps(epsilon) {
  SourceScope scope(where);
  weight = register_parameter(
      "weight", ones({dim}, {.mesh = options.mesh, .placements = options.placements, .dtype = options.dtype}, where));
}

Tensor RMSNorm::forward(const Tensor& x, Where where) const {
  SourceScope scope(where);
  return rms_norm(x, weight.use(where), eps, where);
}

LayerNorm::LayerNorm(int64_t dim, double epsilon, const LayerOptions& options, Where where) : eps(epsilon) {
  SourceScope scope(where);
  TensorOptions tensor{.mesh = options.mesh, .placements = options.placements, .dtype = options.dtype};
  weight = register_parameter("weight", ones({dim}, tensor, where));
  if (options.bias) bias = register_parameter("bias", zeros({dim}, tensor, where));
}

Tensor LayerNorm::forward(const Tensor& x, Where where) const {
  SourceScope scope(where);
  return layer_norm(x, {weight.shape()[0]}, weight.use(where), bias.defined() ? bias.use(where) : Tensor(), eps, where);
}

Tensor Dropout::operator()(const Tensor& x, Where where) const { return dropout(x, p_, is_training(), where); }

Tensor with_axis_placement(const Tensor& x, int64_t axis, const Placement& placement, Where where) {
  if (axis < 0 || x.placements()[axis] == placement) return x;
  Placements target = x.placements();
  target[axis] = placement;
  return x.redistribute(target, where);
}

ColumnParallelLinear::ColumnParallelLinear(int64_t in, int64_t out, const ParallelOptions& options, Where where)
    : Linear(in, out, on_axis(options, Shard(0), where), where) {}

Tensor ColumnParallelLinearWithReplicateInput::operator()(const Tensor& x, Where where) const {
  SourceScope scope(where);
  return forward(with_axis_placement(x, sharded_axis(weight, 0), Replicate(), where), where);
}

Tensor ColumnParallelLinearWithReplicateOutput::operator()(const Tensor& x, Where where) const {
  SourceScope scope(where);
  return with_axis_placement(forward(x, where), sharded_axis(weight, 0), Replicate(), where);
}

RowParallelLinear::RowParallelLinear(int64_t in, int64_t out, const ParallelOptions& options, Where where)
    : Linear(in, out, on_axis(options, Shard(1), where), where) {}

Tensor RowParallelLinearWithReplicateOutput::operator()(const Tensor& x, Where where) const {
  SourceScope scope(where);
  return forward(x, where).reduced(where);
}

VocabParallelEmbedding::VocabParallelEmbedding(int64_t count, int64_t dim, const ParallelOptions& options, Where where)
    : Embedding(count, dim, on_axis(options, Shard(0), where), where) {}

}  // namespace dtorch::nn
