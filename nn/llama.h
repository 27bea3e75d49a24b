// Llama: a decoder-only Transformer (RMSNorm, rotary embedding, grouped-query attention, SwiGLU). The same code on one
// device and on any mesh: parallelism is the placement of its parameters.
#pragma once
#include <string>
#include <vector>

#include "nn/layers.h"

namespace dtorch::nn {

struct LlamaConfig {
  int64_t dim = 256;
  int64_t layers = 4;
  int64_t heads = 8;
  int64_t kv_heads = 0;  // 0: as heads
  int64_t vocab = 256;
  int64_t ffn = 0;  // 0: 8/3 dim, rounded up to a multiple of 32
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  bool tied = false;  // the head is the embedding
  double init_std = 0.02;
  DType dtype = kFloat32;
  // With defaults filled in; throws UserError when sizes don't fit together (dim % heads, heads % kv_heads, odd head
  // size).
  LlamaConfig resolved() const;
};

struct LlamaParallel {
  DeviceMesh mesh = {};   // none: one device
  std::string tp = {};    // axis that splits heads, FFN and vocabulary
  std::string zero = {};  // axis over which parameters (and so optimizer state) are stored split
};

class LlamaLayer : public Module {
 public:
  LlamaLayer(const LlamaConfig& config, const LlamaParallel& parallel, Where where = Where::current());
  // [B, T, D] -> [B, T, D]
  Tensor forward(const Tensor& h, Where where = Where::current()) const;

 private:
  Tensor attention(const Tensor& x, Where where) const;
  LlamaConfig config_;
  Parameter norm1_, wq_, wk_, wv_, wo_, norm2_, w1_, w3_, w2_;  // wq [H, hd, D], wk and wv [KV, hd, D], wo [D, H, hd]
};

class Llama : public Module {
 public:
  Llama(const LlamaConfig& config, const LlamaParallel& parallel = {}, Where where = Where::current());
  // tokens [B, T] (int64) -> logits [B, T, V], Shard(2) on tp.
  Tensor forward(const Tensor& tokens, Where where = Where::current()) const;
  Tensor operator()(const Tensor& tokens, Where where = Where::current()) const { return forward(tokens, where); }
  // Mean cross entropy over the targets that aren't ignore_index.
  Tensor loss(const Tensor& tokens, const Tensor& targets, int64_t ignore_index = -100,
              Where where = Where::current()) const;
  // Their sum; divide by count_valid of all micro-batches together.
  Tensor loss_sum(const Tensor& tokens, const Tensor& targets, int64_t ignore_index = -100,
                  Where where = Where::current()) const;
  const LlamaConfig& config() const { return config_; }

 private:
  LlamaConfig config_;
  Parameter embed_, norm_, head_;  // embed and head [V, D]
  std::vector<LlamaLayer> layers_;
};

}  // namespace dtorch::nn
