// A mixture of experts in place of a feed-forward layer. Experts may be split over a mesh axis (expert parallelism) and
// their inner dim over another (tensor parallelism): placement of the weights, the values don't change.
//
// Tokens reach the experts' devices by gathering them over the expert axis, results return by one reduce-scatter; a
// device computes, of the gathered tokens, those that its experts were chosen for. No token is dropped unless a
// capacity is given.
#pragma once
#include <string>

#include "nn/module.h"

namespace dtorch::nn {

struct MoeConfig {
  int64_t dim = 0, inner = 0;  // D, F
  int64_t experts = 0, top_k = 1;
  // Tokens an expert takes at most, as a multiple of tokens * top_k / experts; those beyond, in the global order of
  // tokens, are dropped (their gate becomes 0). 0: no limit.
  double capacity_factor = 0;
};

struct MoeResult {
  Tensor y;    // [..., D]
  Tensor aux;  // load-balancing loss: E sum_e f_e P_e, a scalar
  Tensor z;    // mean over tokens of logsumexp(router logits)^2, a scalar
};

// The mathematics, on parameters in the layout of use. gate [E, D], w1 and w3 [E, F, D], w2 [E, D, F]. x [B, T, D] with
// any placements that keep D whole; y is as x on the axes that split experts, and pending where they are split
// otherwise (tensor parallelism).
MoeResult moe_forward(const Tensor& x, const MoeConfig& config, const Tensor& gate, const Tensor& w1, const Tensor& w3,
                      const Tensor& w2, Where where = Where::current());

}  // namespace dtorch::nn
