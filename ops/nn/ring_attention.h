// Attention round a ring of devices: blocks of keys and values travel, queries stay (Liu, Zaharia, Abbeel 2023). Not
// for users.
#pragma once
#include "ops/nn/functions.h"

namespace dtorch::nn_ops {

struct RingCall {
  int64_t axis = 0;  // that splits the sequence of q, and nothing else does
  bool is_causal = false;
  double scale = 1.0;
  RingOrder order = RingOrder::kAuto;
};
// q [B, H, T, D], k and v [B, KV, S, D] on one mesh, Shard(2) on the axis, placed as context_parallel.cc says; T == S
// with a causal mask.
Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const RingCall& call, const Where& where);

}  // namespace dtorch::nn_ops
