// What a Llama is and how it is spread: sizes, the axes of the mesh that split it, and from both the layout of every
// parameter and activation. No computation here.
//
// Axes that only split the input (dp, and ulysses_cp / ring_cp for the sequence) aren't named here: the placements of
// the tokens say so, and attention picks its axes up by name.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "ops/nn/functions.h"

namespace dtorch::nn {

struct LlamaConfig {
  int64_t dim = 256;
  int64_t layers = 4;
  int64_t heads = 8;
  int64_t kv_heads = 0;  // 0: as heads
  int64_t vocab = 256;
  int64_t ffn = 0;      // 0: 8/3 dim, rounded up to a multiple of 32; of one expert where there are experts
  int64_t experts = 0;  // 0: a dense feed-forward part
  int64_t top_k = 2;
  double capacity_factor = 0;  // 0: no token is dropped
  double gate_scale = 1;       // what the weights of a token's experts add up to
  double aux_coef = 0;         // of the load-balancing loss, summed over layers
  double z_coef = 0;           // of the router's z loss, summed over layers
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  bool tied = false;  // the head is the embedding
  double init_std = 0.02;
  DType dtype = kFloat32;
  // With defaults filled in; throws UserError when sizes don't fit together (dim % heads, heads % kv_heads, odd head
  // size, top_k of experts).
  LlamaConfig resolved(Where where = Where::current()) const;
};

struct LlamaParallel {
  DeviceMesh mesh = {};               // none: one device
  std::string tp = {};                // axis that splits heads, FFN and vocabulary
  std::string zero = {};              // axis over which parameters (and so optimizer state) are stored split
  int zero_stage = 3;                 // 1, 2 or 3: how long gathered parameters live (nn::Gather)
  std::string ep = {};                // axis that splits the experts; tokens are split over it too
  std::string pp = {};                // axis of pipeline stages
  int64_t virtual_stages = 1;         // chunks of layers a stage (interleaved schedule)
  bool sequence_parallel = false;     // between layers the sequence is split over tp
  bool recompute = false;             // layers are computed again in backward instead of keeping their inner values
  std::optional<DType> compute = {};  // dtype of computation; parameters stay as wide as the config says
  RingOrder ring_order = RingOrder::kAuto;  // of attention where ring_cp splits the sequence
};

class LlamaSharding {
 public:
  LlamaSharding() = default;
  // Throws UserError when the model can't be spread so, with what would be legal.
  LlamaSharding(const LlamaConfig& config, const LlamaParallel& parallel, Where where);

  int64_t num_chunks() const { return static_cast<int64_t>(stages_.size()) * parallel_.virtual_stages; }
  const DeviceMesh& chunk_mesh(int64_t chunk) const { return stages_[static_cast<size_t>(chunk) % stages_.size()]; }
  int64_t chunk_of_layer(int64_t layer) const;
  const DeviceMesh& layer_mesh(int64_t layer) const { return chunk_mesh(chunk_of_layer(layer)); }
  int64_t tp_size() const { return parallel_.tp.empty() ? 1 : stages_[0].size(parallel_.tp); }
  bool recompute() const { return parallel_.recompute; }
  RingOrder ring_order() const { return parallel_.ring_order; }

  // --- parameters: a dim that tp splits (-1: none), and whether dim 0 counts experts
  struct Split {
    int64_t tp_dim = -1;
    bool experts = false;
  };
  // Normal with a deviation; stored and used as the sharding says.
  Parameter normal(const DeviceMesh& mesh, const Shape& shape, const Split& split, double deviation,
                   const Where& where) const;
  Parameter ones_of(const DeviceMesh& mesh, const Shape& shape, const Where& where) const;
  // The layout in which a parameter with that split is used on a mesh.
  Layout use_layout(const DeviceMesh& mesh, const Shape& shape, const Split& split) const;

  // Of a layer's key/value cache [B, KV, S, hd]: rows as `batch` says, heads as the layer's keys.
  TensorOptions cache_options(int64_t layer, const Placements& batch, int64_t kv_heads) const;

  // --- activations [B, T, D]
  // Between layers: what is pending is reduced; with sequence parallelism straight to the part of the sequence.
  Tensor residual(const Tensor& x, const Where& where) const;
  Layout residual_layout(const Tensor& x) const;
  // As a layer computes it: the whole sequence of this device's batch on every device of tp.
  Tensor gathered(const Tensor& x, const Where& where) const;

 private:
  Parameter made(const DeviceMesh& mesh, const Tensor& value, const Split& split) const;
  Layout stored_layout(const DeviceMesh& mesh, const Shape& shape, const Split& split) const;
  TensorOptions stored_options(const DeviceMesh& mesh, const Shape& shape, const Split& split) const;
  DType dtype_ = kFloat32;
  int64_t layers_ = 0;
  LlamaParallel parallel_;
  std::vector<DeviceMesh> stages_;
};

}  // namespace dtorch::nn
