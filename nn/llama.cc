#include "nn/llama.h"

#include <algorithm>
#include <cmath>

#include "ops/nn/functions.h"
#include "ops/ops.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {
namespace {

// Makes parameters of one model: normal with a deviation (or ones), `tp` sharding one dim, stored split over `zero`.
class ParameterMaker {
 public:
  ParameterMaker(const LlamaConfig& config, const LlamaParallel& parallel, Where where)
      : config_(config), parallel_(parallel), where_(where) {
    mesh_ = parallel.mesh ? parallel.mesh : init_device_mesh("cpu", {1});
  }
  int64_t tp_size() const { return parallel_.tp.empty() ? 1 : mesh_.size(parallel_.tp); }

  // tp_dim < 0: not split by tp.
  Parameter normal(const Shape& shape, int64_t tp_dim, double deviation) const {
    NoGrad no_grad;
    Layout layout = stored_layout(shape, tp_dim);
    Tensor unit = randn(
        shape, {.mesh = mesh_, .placements = layout.placements(), .order = order_names(layout), .dtype = config_.dtype},
        where_);
    return made(unit * deviation, tp_dim);
  }
  Parameter ones_of(const Shape& shape) const {
    Layout layout = stored_layout(shape, -1);
    return made(ones(shape, {.mesh = mesh_, .placements = layout.placements(), .dtype = config_.dtype}, where_), -1);
  }

 private:
  Layout use_layout(const Shape& shape, int64_t tp_dim) const {
    Placements placements(mesh_.num_axes(), Replicate());
    if (tp_dim >= 0 && !parallel_.tp.empty()) placements[mesh_.axis(parallel_.tp)] = Shard(tp_dim);
    return Layout(mesh_, placements, shape.ndim());
  }
  // ZeRO: split further on dim 0, innermost.
  Layout stored_layout(const Shape& shape, int64_t tp_dim) const {
    Layout use = use_layout(shape, tp_dim);
    if (parallel_.zero.empty()) return use;
    Placements placements = use.placements();
    placements[mesh_.axis(parallel_.zero)] = Shard(0);
    return use.with_placements(placements, shape.ndim());
  }
  std::vector<std::string> order_names(const Layout& layout) const {
    std::vector<std::string> names;
    if (layout.order_is_default()) return names;
    for (int8_t axis : layout.shard_order()) names.push_back(mesh_.axis_names()[static_cast<size_t>(axis)]);
    return names;
  }
  Parameter made(const Tensor& value, int64_t tp_dim) const {
    Parameter parameter(value);
    parameter.with_use_layout(use_layout(value.shape(), tp_dim));
    return parameter;
  }

  const LlamaConfig& config_;
  const LlamaParallel& parallel_;
  Where where_;
  DeviceMesh mesh_;
};

}  // namespace

LlamaConfig LlamaConfig::resolved() const {
  LlamaConfig c = *this;
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.ffn == 0) c.ffn = (c.dim * 8 / 3 + 31) / 32 * 32;
  auto need = [](bool ok, const std::string& what) {
    if (!ok) throw UserError("[Llama] " + what);
  };
  need(c.dim > 0 && c.heads > 0 && c.kv_heads > 0 && c.vocab > 0 && c.ffn > 0 && c.layers >= 0,
       "sizes must be positive");
  need(c.dim % c.heads == 0, "dim " + std::to_string(c.dim) + " isn't a multiple of heads " + std::to_string(c.heads));
  need(c.heads % c.kv_heads == 0,
       "heads " + std::to_string(c.heads) + " isn't a multiple of kv_heads " + std::to_string(c.kv_heads));
  need(c.dim / c.heads % 2 == 0,
       "head size " + std::to_string(c.dim / c.heads) + " is odd: rotary embedding needs pairs");
  return c;
}

LlamaLayer::LlamaLayer(const LlamaConfig& config, const LlamaParallel& parallel, Where where)
    : config_(config.resolved()) {
  SourceScope scope(where);
  const LlamaConfig& c = config_;
  const int64_t hd = c.dim / c.heads;
  ParameterMaker make(c, parallel, where);
  // Residual branches start smaller, so that the sum over layers keeps its scale.
  const double out_std = c.init_std / std::max(1.0, std::sqrt(2.0 * static_cast<double>(c.layers)));
  const int64_t kv_dim = c.kv_heads % make.tp_size() == 0 ? 0 : -1;
  norm1_ = register_parameter("norm1", make.ones_of({c.dim}));
  wq_ =
      register_parameter("wq", make.normal({c.heads, hd, c.dim}, 0, c.init_std).with_file_shape({c.heads * hd, c.dim}));
  wk_ = register_parameter(
      "wk", make.normal({c.kv_heads, hd, c.dim}, kv_dim, c.init_std).with_file_shape({c.kv_heads * hd, c.dim}));
  wv_ = register_parameter(
      "wv", make.normal({c.kv_heads, hd, c.dim}, kv_dim, c.init_std).with_file_shape({c.kv_heads * hd, c.dim}));
  wo_ = register_parameter("wo", make.normal({c.dim, c.heads, hd}, 1, out_std).with_file_shape({c.dim, c.heads * hd}));
  norm2_ = register_parameter("norm2", make.ones_of({c.dim}));
  w1_ = register_parameter("w1", make.normal({c.ffn, c.dim}, 0, c.init_std));
  w3_ = register_parameter("w3", make.normal({c.ffn, c.dim}, 0, c.init_std));
  w2_ = register_parameter("w2", make.normal({c.dim, c.ffn}, 1, out_std));
}

Tensor LlamaLayer::attention(const Tensor& x, Where where) const {
  const RotaryOptions rotary{.theta = config_.rope_theta};
  Tensor q = rotary_embedding(einsum("btd,hkd->bhtk", x, wq_.use(where), where), rotary, where);
  Tensor k = rotary_embedding(einsum("btd,hkd->bhtk", x, wk_.use(where), where), rotary, where);
  Tensor v = einsum("btd,hkd->bhtk", x, wv_.use(where), where);
  Tensor o = scaled_dot_product_attention(q, k, v, {.is_causal = true}, where);
  return einsum("bhtk,dhk->btd", o, wo_.use(where), where);
}

Tensor LlamaLayer::forward(const Tensor& input, Where where) const {
  SourceScope scope(where);
  Tensor h =
      add(input, attention(rms_norm(input, norm1_.use(where), config_.norm_eps, where), where).reduced(where), where);
  Tensor n = rms_norm(h, norm2_.use(where), config_.norm_eps, where);
  Tensor gate = silu(linear(n, w1_.use(where), Tensor(), where), where);
  Tensor inner = mul(gate, linear(n, w3_.use(where), Tensor(), where), where);
  return add(h, linear(inner, w2_.use(where), Tensor(), where).reduced(where), where);
}

Llama::Llama(const LlamaConfig& config, const LlamaParallel& parallel, Where where) : config_(config.resolved()) {
  SourceScope scope(where);
  const LlamaConfig& c = config_;
  ParameterMaker make(c, parallel, where);
  embed_ = register_parameter("embed", make.normal({c.vocab, c.dim}, 0, c.init_std));
  for (int64_t i = 0; i < c.layers; ++i) {
    layers_.push_back(register_module("layers." + std::to_string(i), LlamaLayer(c, parallel, where)));
  }
  norm_ = register_parameter("norm", make.ones_of({c.dim}));
  head_ = c.tied ? embed_ : register_parameter("head", make.normal({c.vocab, c.dim}, 0, c.init_std));
}

Tensor Llama::forward(const Tensor& tokens, Where where) const {
  SourceScope scope(where);
  Tensor h = embedding(tokens, embed_.use(where), where);
  for (const LlamaLayer& layer : layers_) h = layer.forward(h, where);
  return linear(rms_norm(h, norm_.use(where), config_.norm_eps, where), head_.use(where), Tensor(), where);
}

Tensor Llama::loss(const Tensor& tokens, const Tensor& targets, int64_t ignore_index, Where where) const {
  SourceScope scope(where);
  return cross_entropy(forward(tokens, where), targets, {.ignore_index = ignore_index}, where);
}

Tensor Llama::loss_sum(const Tensor& tokens, const Tensor& targets, int64_t ignore_index, Where where) const {
  SourceScope scope(where);
  return cross_entropy(forward(tokens, where), targets, {.ignore_index = ignore_index, .reduction = Reduction::kSum},
                       where);
}

}  // namespace dtorch::nn
