// Llama: a decoder-only Transformer (RMSNorm, rotary embedding, grouped-query attention, SwiGLU or a mixture of
// experts). The same code on one device and on any mesh: parallelism is the placement of its parameters and of its
// input (nn/llama_sharding.h), never another computation.
#pragma once
#include <string>
#include <vector>

#include "nn/layers.h"
#include "nn/llama_sharding.h"
#include "nn/pipeline.h"

namespace dtorch::nn {

// One decoder layer, on the mesh of its stage.
class LlamaLayer : public Module {
 public:
  LlamaLayer(const LlamaConfig& config, const LlamaSharding& sharding, int64_t layer, Where where = Where::current());
  struct Result {
    Tensor h;    // [B, T, D]
    Tensor aux;  // what routing adds to the loss, a scalar; undefined without experts
  };
  Result forward(const Tensor& h, Where where = Where::current()) const;
  // With keys and values of earlier tokens, [B, KV, S, hd] each, to which those of h [B, T, D] are added; positions as
  // in ops/nn/cache.h. No gradients.
  Tensor forward_cached(const Tensor& h, const Tensor& positions, Tensor& keys, Tensor& values,
                        Where where = Where::current()) const;

 private:
  Result compute(const Tensor& h, Where where) const;
  Tensor attention(const Tensor& x, Where where) const;
  Result feed_forward(const Tensor& x, Where where) const;
  LlamaConfig config_;
  LlamaSharding sharding_;
  // wq [H, hd, D], wk and wv [KV, hd, D], wo [D, H, hd]; w1, w3 [F, D], w2 [D, F], with experts [E, F, D], [E, D, F]
  Parameter norm1_, wq_, wk_, wv_, wo_, norm2_, gate_, w1_, w3_, w2_;
};

class Llama : public Module {
 public:
  Llama(const LlamaConfig& config, const LlamaParallel& parallel = {}, Where where = Where::current());

  // tokens [B, T] (int64), on the mesh of the first stage -> logits [B, T, V], Shard(2) on tp, on that of the last.
  Tensor forward(const Tensor& tokens, Where where = Where::current()) const;
  Tensor operator()(const Tensor& tokens, Where where = Where::current()) const { return forward(tokens, where); }
  // Mean cross entropy over the targets that aren't ignore_index, plus what routing adds. targets come to the mesh of
  // the last stage.
  Tensor loss(const Tensor& tokens, const Tensor& targets, int64_t ignore_index = -100,
              Where where = Where::current()) const;
  struct Losses {
    Tensor cross_entropy_sum;  // divide by count_valid of all micro-batches together
    Tensor aux;                // aux_coef and z_coef are in it; the mean over micro-batches counts; undefined: none
  };
  Losses losses(const Tensor& tokens, const Tensor& targets, int64_t ignore_index = -100,
                Where where = Where::current()) const;
  Tensor loss_sum(const Tensor& tokens, const Tensor& targets, int64_t ignore_index = -100,
                  Where where = Where::current()) const {
    return losses(tokens, targets, ignore_index, where).cross_entropy_sum;
  }

  // Decoding with a key/value cache: what each layer keeps of the tokens seen so far.
  struct Cache {
    std::vector<Tensor> keys, values;  // [B, KV, places, hd], one a layer
    std::vector<int64_t> lengths;      // tokens seen, one a row
    int64_t places = 0;
  };
  // batch: placements of the rows, one an axis of a stage's mesh (Shard(0) or Replicate).
  Cache make_cache(int64_t rows, int64_t places, const Placements& batch, Where where = Where::current()) const;
  // tokens [B, T], of which counts[b] at the start of each row count (at least 1): logits [B, V] after the last one
  // that counts. Adds them to the cache. Throws UserError when it is full.
  Tensor decode(const Tensor& tokens, const std::vector<int64_t>& counts, Cache& cache,
                Where where = Where::current()) const;

  // The same in pieces, for a pipeline: chunk c on its mesh, from tokens (c = 0) or the activation of chunk c - 1. Of
  // the last chunk, h is normalised and ready for the head.
  int64_t num_chunks() const { return sharding_.num_chunks(); }
  const DeviceMesh& chunk_mesh(int64_t chunk) const { return sharding_.chunk_mesh(chunk); }
  LlamaLayer::Result forward_chunk(int64_t chunk, const Tensor& input, Where where = Where::current()) const;
  Tensor head_loss_sum(const Tensor& h, const Tensor& targets, int64_t ignore_index = -100,
                       Where where = Where::current()) const;
  // For pipeline_step. A micro-batch's loss is cross_entropy_sum * share, its aux is aux * aux_share.
  std::vector<PipelineChunk> pipeline_chunks(const std::vector<Tensor>& targets, double share, double aux_share,
                                             int64_t ignore_index = -100) const;

  const LlamaConfig& config() const { return config_; }
  const LlamaSharding& sharding() const { return sharding_; }

 private:
  LlamaLayer::Result flow(const Tensor& tokens, Where where) const;  // through all chunks
  Tensor logits(const Tensor& h, Where where) const;
  LlamaConfig config_;
  LlamaSharding sharding_;
  Parameter embed_, norm_, head_;  // embed and head [V, D]
  std::vector<LlamaLayer> layers_;
};

}  // namespace dtorch::nn
