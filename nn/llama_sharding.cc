#include "nn/llama_sharding.h"

#include <algorithm>

#include "ops/ops.h"
#include "runtime/client/gradient.h"

namespace dtorch::nn {
namespace {

constexpr int64_t kSequenceDim = 1;

void need(bool ok, const std::string& what, const Where& where) {
  if (!ok) throw UserError("[Llama] " + what + called_at(where));
}

Gather gather_of_stage(int stage) {
  switch (stage) {
    case 1:
      return Gather::kOncePerStep;
    case 2:
      return Gather::kOncePerStepReducing;
    case 3:
      return Gather::kPerUse;
    default:
      throw UserError("[Llama] zero_stage is " + std::to_string(stage) + ", legal are 1, 2 and 3");
  }
}

}  // namespace

LlamaConfig LlamaConfig::resolved(Where where) const {
  LlamaConfig c = *this;
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.ffn == 0) c.ffn = (c.dim * 8 / 3 + 31) / 32 * 32;
  need(c.dim > 0 && c.heads > 0 && c.kv_heads > 0 && c.vocab > 0 && c.ffn > 0 && c.layers >= 0 && c.experts >= 0,
       "sizes must be positive", where);
  need(c.dim % c.heads == 0, "dim " + std::to_string(c.dim) + " isn't a multiple of heads " + std::to_string(c.heads),
       where);
  need(c.heads % c.kv_heads == 0,
       "heads " + std::to_string(c.heads) + " isn't a multiple of kv_heads " + std::to_string(c.kv_heads), where);
  need(c.dim / c.heads % 2 == 0,
       "head size " + std::to_string(c.dim / c.heads) + " is odd: rotary embedding needs pairs", where);
  need(c.experts == 0 || (c.top_k >= 1 && c.top_k <= c.experts),
       "top_k is " + std::to_string(c.top_k) + ", legal are 1 to " + std::to_string(c.experts) + ", the experts",
       where);
  return c;
}

LlamaSharding::LlamaSharding(const LlamaConfig& config, const LlamaParallel& parallel, Where where)
    : dtype_(config.dtype), layers_(config.layers), parallel_(parallel) {
  const DeviceMesh mesh = parallel.mesh ? parallel.mesh : init_device_mesh("cpu", {1});
  stages_ = parallel.pp.empty() ? std::vector{mesh} : mesh.unbind(parallel.pp, where);
  for (const std::string& name : {parallel.tp, parallel.zero, parallel.ep}) {
    if (!name.empty()) stages_[0].axis(name, where);
  }
  (void)gather_of_stage(parallel.zero_stage);
  need(parallel.virtual_stages >= 1, "virtual_stages must be positive", where);
  need(num_chunks() <= std::max<int64_t>(1, layers_),
       std::to_string(num_chunks()) + " pipeline chunks of " + std::to_string(layers_) + " layers: legal are 1 to " +
           std::to_string(std::max<int64_t>(1, layers_)),
       where);
  need(!parallel.sequence_parallel || !parallel.tp.empty(), "sequence_parallel splits over tp, and no tp axis is named",
       where);
  need(parallel.ep.empty() || config.experts > 0, "an ep axis is named, and the model has no experts", where);
  if (!parallel.ep.empty()) {
    need(stages_[0].size(parallel.ep) <= config.experts,
         std::to_string(config.experts) + " experts on " + std::to_string(stages_[0].size(parallel.ep)) +
             " devices of '" + parallel.ep + "': legal are 1 to " + std::to_string(config.experts),
         where);
  }
}

int64_t LlamaSharding::chunk_of_layer(int64_t layer) const {
  int64_t chunk = 0;
  while (true) {
    const Span1 part = split_part(layers_, num_chunks(), chunk);
    if (layer < part.offset + part.size) return chunk;
    ++chunk;
  }
}

Layout LlamaSharding::use_layout(const DeviceMesh& mesh, const Shape& shape, const Split& split) const {
  Placements placements(mesh.num_axes(), Replicate());
  if (split.tp_dim >= 0 && !parallel_.tp.empty()) placements[mesh.axis(parallel_.tp)] = Shard(split.tp_dim);
  if (split.experts && !parallel_.ep.empty()) placements[mesh.axis(parallel_.ep)] = Shard(0);
  return Layout(mesh, placements, shape.ndim());
}

// ZeRO: split further on dim 0, innermost.
Layout LlamaSharding::stored_layout(const DeviceMesh& mesh, const Shape& shape, const Split& split) const {
  const Layout use = use_layout(mesh, shape, split);
  if (parallel_.zero.empty()) return use;
  Placements placements = use.placements();
  placements[mesh.axis(parallel_.zero)] = Shard(0);
  return use.with_placements(placements, shape.ndim());
}

TensorOptions LlamaSharding::stored_options(const DeviceMesh& mesh, const Shape& shape, const Split& split) const {
  const Layout layout = stored_layout(mesh, shape, split);
  std::vector<std::string> order;
  if (!layout.order_is_default()) {
    for (int8_t axis : layout.shard_order()) order.push_back(mesh.axis_names()[static_cast<size_t>(axis)]);
  }
  return {.mesh = mesh, .placements = layout.placements(), .order = order, .dtype = dtype_};
}

Parameter LlamaSharding::made(const DeviceMesh& mesh, const Tensor& value, const Split& split) const {
  Parameter parameter(value);
  parameter.with_use_layout(use_layout(mesh, value.shape(), split), gather_of_stage(parallel_.zero_stage));
  if (parallel_.compute) parameter.with_use_dtype(*parallel_.compute);
  return parameter;
}

Parameter LlamaSharding::normal(const DeviceMesh& mesh, const Shape& shape, const Split& split, double deviation,
                                const Where& where) const {
  NoGrad no_grad;
  return made(mesh, randn(shape, stored_options(mesh, shape, split), where) * deviation, split);
}

Parameter LlamaSharding::ones_of(const DeviceMesh& mesh, const Shape& shape, const Where& where) const {
  return made(mesh, ones(shape, stored_options(mesh, shape, {}), where), {});
}

TensorOptions LlamaSharding::cache_options(int64_t layer, const Placements& batch, int64_t kv_heads) const {
  const DeviceMesh& mesh = layer_mesh(layer);
  Placements placements = batch;
  if (!parallel_.tp.empty() && kv_heads % tp_size() == 0) placements[mesh.axis(parallel_.tp)] = Shard(1);
  return {.mesh = mesh, .placements = placements, .dtype = parallel_.compute.value_or(dtype_)};
}

Layout LlamaSharding::residual_layout(const Tensor& x) const {
  Placements placements = x.layout().without_partial().placements();
  if (parallel_.sequence_parallel) placements[x.mesh().axis(parallel_.tp)] = Shard(kSequenceDim);
  return x.layout().with_placements(placements, x.ndim());
}

Tensor LlamaSharding::residual(const Tensor& x, const Where& where) const {
  return x.redistribute(residual_layout(x), where);
}

Tensor LlamaSharding::gathered(const Tensor& x, const Where& where) const {
  if (!parallel_.sequence_parallel) return x;
  Placements placements = x.placements();
  placements[x.mesh().axis(parallel_.tp)] = Replicate();
  return x.redistribute(placements, where);
}

}  // namespace dtorch::nn
