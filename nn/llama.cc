#include "nn/llama.h"

#include <algorithm>
#include <cmath>

#include "nn/moe.h"
#include "nn/recompute.h"
#include "ops/nn/functions.h"
#include "ops/ops.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {
namespace {

// To another stage's mesh, placed there as it is here.
Tensor moved(const Tensor& x, const DeviceMesh& mesh, const Where& where) {
  if (x.mesh() == mesh) return x;
  return x.redistribute(Layout(mesh, x.placements(), x.ndim(), x.layout().shard_order()), where);
}

// A narrow model's loss isn't narrow: three digits of the sum of a batch's losses would be left.
Tensor widened(const Tensor& logits, DType dtype, const Where& where) {
  return logits.dtype() == dtype ? logits : logits.to(dtype, where);
}

Tensor plus(const Tensor& sum, const Tensor& more, const Where& where) {
  if (!more.defined()) return sum;
  return sum.defined() ? add(moved(sum, more.mesh(), where), more, where) : more;
}

}  // namespace

LlamaLayer::LlamaLayer(const LlamaConfig& config, const LlamaSharding& sharding, int64_t layer, Where where)
    : config_(config.resolved(where)), sharding_(sharding) {
  SourceScope scope(where);
  const LlamaConfig& c = config_;
  const LlamaSharding& s = sharding_;
  const DeviceMesh& mesh = s.layer_mesh(layer);
  const int64_t hd = c.dim / c.heads;
  // Residual branches start smaller, so that the sum over layers keeps its scale.
  const double out_std = c.init_std / std::max(1.0, std::sqrt(2.0 * static_cast<double>(c.layers)));
  const int64_t kv_dim = c.kv_heads % s.tp_size() == 0 ? 0 : -1;
  norm1_ = register_parameter("norm1", s.ones_of(mesh, {c.dim}, where));
  wq_ = register_parameter(
      "wq",
      s.normal(mesh, {c.heads, hd, c.dim}, {.tp_dim = 0}, c.init_std, where).with_file_shape({c.heads * hd, c.dim}));
  wk_ = register_parameter("wk", s.normal(mesh, {c.kv_heads, hd, c.dim}, {.tp_dim = kv_dim}, c.init_std, where)
                                     .with_file_shape({c.kv_heads * hd, c.dim}));
  wv_ = register_parameter("wv", s.normal(mesh, {c.kv_heads, hd, c.dim}, {.tp_dim = kv_dim}, c.init_std, where)
                                     .with_file_shape({c.kv_heads * hd, c.dim}));
  wo_ = register_parameter(
      "wo", s.normal(mesh, {c.dim, c.heads, hd}, {.tp_dim = 1}, out_std, where).with_file_shape({c.dim, c.heads * hd}));
  norm2_ = register_parameter("norm2", s.ones_of(mesh, {c.dim}, where));
  if (c.experts == 0) {
    w1_ = register_parameter("w1", s.normal(mesh, {c.ffn, c.dim}, {.tp_dim = 0}, c.init_std, where));
    w3_ = register_parameter("w3", s.normal(mesh, {c.ffn, c.dim}, {.tp_dim = 0}, c.init_std, where));
    w2_ = register_parameter("w2", s.normal(mesh, {c.dim, c.ffn}, {.tp_dim = 1}, out_std, where));
  } else {
    const LlamaSharding::Split inner{.tp_dim = 1, .experts = true}, outer{.tp_dim = 2, .experts = true};
    gate_ = register_parameter("gate", s.normal(mesh, {c.experts, c.dim}, {}, c.init_std, where));
    w1_ = register_parameter("w1", s.normal(mesh, {c.experts, c.ffn, c.dim}, inner, c.init_std, where));
    w3_ = register_parameter("w3", s.normal(mesh, {c.experts, c.ffn, c.dim}, inner, c.init_std, where));
    w2_ = register_parameter("w2", s.normal(mesh, {c.experts, c.dim, c.ffn}, outer, out_std, where));
  }
}

Tensor LlamaLayer::attention(const Tensor& x, Where where) const {
  const RotaryOptions rotary{.theta = config_.rope_theta};
  Tensor q = rotary_embedding(einsum("btd,hkd->bhtk", x, wq_.use(where), where), rotary, where);
  Tensor k = rotary_embedding(einsum("btd,hkd->bhtk", x, wk_.use(where), where), rotary, where);
  Tensor v = einsum("btd,hkd->bhtk", x, wv_.use(where), where);
  Tensor o = scaled_dot_product_attention(q, k, v, {.is_causal = true, .ring_order = sharding_.ring_order()}, where);
  return einsum("bhtk,dhk->btd", o, wo_.use(where), where);
}

LlamaLayer::Result LlamaLayer::feed_forward(const Tensor& x, Where where) const {
  if (config_.experts == 0) {
    Tensor gate = silu(linear(x, w1_.use(where), Tensor(), where), where);
    Tensor inner = mul(gate, linear(x, w3_.use(where), Tensor(), where), where);
    return {linear(inner, w2_.use(where), Tensor(), where), {}};
  }
  const MoeConfig moe{.dim = config_.dim,
                      .inner = config_.ffn,
                      .experts = config_.experts,
                      .top_k = config_.top_k,
                      .capacity_factor = config_.capacity_factor,
                      .gate_scale = config_.gate_scale};
  MoeResult result = moe_forward(x, moe, gate_.use(where), w1_.use(where), w3_.use(where), w2_.use(where), where);
  Tensor aux;
  if (config_.aux_coef != 0) aux = plus(aux, result.aux * config_.aux_coef, where);
  if (config_.z_coef != 0) aux = plus(aux, result.z * config_.z_coef, where);
  return {result.y, aux};
}

LlamaLayer::Result LlamaLayer::compute(const Tensor& input, Where where) const {
  const LlamaSharding& s = sharding_;
  Tensor x = s.gathered(rms_norm(input, norm1_.use(where), config_.norm_eps, where), where);
  Tensor h = add(input, s.residual(attention(x, where), where), where);
  Tensor n = s.gathered(rms_norm(h, norm2_.use(where), config_.norm_eps, where), where);
  auto [y, aux] = feed_forward(n, where);
  return {add(h, s.residual(y, where), where), aux};
}

LlamaLayer::Result LlamaLayer::forward(const Tensor& input, Where where) const {
  SourceScope scope(where);
  if (!sharding_.recompute()) return compute(input, where);
  const auto part = [self = *this, where](const std::vector<Tensor>& in) {
    const Result result = self.compute(in[0], where);
    return result.aux.defined() ? std::vector<Tensor>{result.h, result.aux} : std::vector<Tensor>{result.h};
  };
  const std::vector<Tensor> outputs = checkpoint(part, {input}, where);
  return {outputs[0], outputs.size() > 1 ? outputs[1] : Tensor()};
}

Llama::Llama(const LlamaConfig& config, const LlamaParallel& parallel, Where where)
    : config_(config.resolved(where)), sharding_(config_, parallel, where) {
  SourceScope scope(where);
  const LlamaConfig& c = config_;
  const DeviceMesh &first = chunk_mesh(0), &last = chunk_mesh(num_chunks() - 1);
  embed_ = register_parameter("embed", sharding_.normal(first, {c.vocab, c.dim}, {.tp_dim = 0}, c.init_std, where));
  for (int64_t i = 0; i < c.layers; ++i) {
    layers_.push_back(register_module("layers." + std::to_string(i), LlamaLayer(c, sharding_, i, where)));
  }
  norm_ = register_parameter("norm", sharding_.ones_of(last, {c.dim}, where));
  if (!c.tied) {
    head_ = register_parameter("head", sharding_.normal(last, {c.vocab, c.dim}, {.tp_dim = 0}, c.init_std, where));
  }
}

LlamaLayer::Result Llama::forward_chunk(int64_t chunk, const Tensor& input, Where where) const {
  SourceScope scope(where);
  LlamaLayer::Result flow{input, {}};
  if (chunk == 0) flow.h = sharding_.residual(embedding(input, embed_.use(where), where), where);
  const Span1 own = split_part(config_.layers, num_chunks(), chunk);
  for (int64_t i = own.offset; i < own.offset + own.size; ++i) {
    auto [h, aux] = layers_[static_cast<size_t>(i)].forward(flow.h, where);
    flow = {h, plus(flow.aux, aux, where)};
  }
  if (chunk == num_chunks() - 1) {
    flow.h = sharding_.gathered(rms_norm(flow.h, norm_.use(where), config_.norm_eps, where), where);
  }
  return flow;
}

Tensor Llama::logits(const Tensor& h, Where where) const {
  if (!config_.tied) return linear(h, head_.use(where), Tensor(), where);
  const Layout here = sharding_.use_layout(h.mesh(), embed_.shape(), {.tp_dim = 0});
  return linear(h, h.mesh() == embed_.layout().mesh() ? embed_.use(where) : embed_.use_on(here, where), Tensor(),
                where);
}

LlamaLayer::Result Llama::flow(const Tensor& tokens, Where where) const {
  LlamaLayer::Result all{tokens, {}};
  for (int64_t chunk = 0; chunk < num_chunks(); ++chunk) {
    const LlamaLayer::Result part = forward_chunk(chunk, moved(all.h, chunk_mesh(chunk), where), where);
    all = {part.h, plus(all.aux, part.aux, where)};
  }
  return all;
}

Tensor Llama::forward(const Tensor& tokens, Where where) const {
  SourceScope scope(where);
  return logits(flow(tokens, where).h, where);
}

Tensor Llama::head_loss_sum(const Tensor& h, const Tensor& targets, int64_t ignore_index, Where where) const {
  SourceScope scope(where);
  return cross_entropy(widened(logits(h, where), config_.dtype, where), moved(targets, h.mesh(), where),
                       {.ignore_index = ignore_index, .reduction = Reduction::kSum}, where);
}

Llama::Losses Llama::losses(const Tensor& tokens, const Tensor& targets, int64_t ignore_index, Where where) const {
  SourceScope scope(where);
  const LlamaLayer::Result all = flow(tokens, where);
  return {head_loss_sum(all.h, targets, ignore_index, where), all.aux};
}

Tensor Llama::loss(const Tensor& tokens, const Tensor& targets, int64_t ignore_index, Where where) const {
  SourceScope scope(where);
  const LlamaLayer::Result all = flow(tokens, where);
  const Tensor wide = widened(logits(all.h, where), config_.dtype, where);
  return plus(cross_entropy(wide, moved(targets, wide.mesh(), where), {.ignore_index = ignore_index}, where), all.aux,
              where);
}

std::vector<PipelineChunk> Llama::pipeline_chunks(const std::vector<Tensor>& targets, double share, double aux_share,
                                                  int64_t ignore_index) const {
  std::vector<PipelineChunk> chunks;
  for (int64_t chunk = 0; chunk < num_chunks(); ++chunk) {
    const bool is_last = chunk == num_chunks() - 1;
    chunks.push_back({chunk_mesh(chunk), [=, self = *this](const Tensor& input, int64_t micro) {
                        const LlamaLayer::Result flow = self.forward_chunk(chunk, input);
                        const Tensor aux = flow.aux.defined() ? flow.aux * aux_share : Tensor();
                        if (!is_last) return PipelineOutput{flow.h, {}, aux};
                        const Tensor sum =
                            self.head_loss_sum(flow.h, targets[static_cast<size_t>(micro)], ignore_index);
                        return PipelineOutput{{}, sum * share, aux};
                      }});
  }
  return chunks;
}

}  // namespace dtorch::nn
