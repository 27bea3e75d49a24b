// A mixture of experts in place of a feed-forward layer. Experts may be split over a mesh axis (expert parallelism) and
// their inner dim over another (tensor parallelism): placement of the weights, the values don't change.
//
// Tokens that are split over the axis of the experts travel to the devices of those that they chose, and the results
// back (ops/nn/moe.h); a device computes what came. No token is dropped unless a capacity is given.
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
  // Weights of the chosen experts add up to 1, as with a softmax over the chosen alone; else they are the router's
  // probabilities as they are.
  bool renormalize = true;
  double gate_scale = 1;     // weights of the chosen experts are multiplied by it
  int64_t shared_inner = 0;  // F of an expert that every token goes through, added to the others; 0: none
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

struct MoeParallel {
  DeviceMesh mesh = {};  // none: one device
  std::string ep = {};   // axis that splits experts
  std::string tp = {};   // axis that splits F
  DType dtype = kFloat32;
};

class MoE : public Module {
 public:
  // Throws UserError: sizes that aren't positive, top_k of more experts than there are.
  MoE(const MoeConfig& config, const MoeParallel& parallel = {}, Where where = Where::current());
  // x [..., D] -> y [..., D], what is pending on tp reduced; aux and z as moe_forward gives them.
  MoeResult forward(const Tensor& x, Where where = Where::current()) const;
  MoeResult operator()(const Tensor& x, Where where = Where::current()) const { return forward(x, where); }
  Parameter gate, w1, w3, w2, shared_w1, shared_w3, shared_w2;  // the shared ones undefined without a shared expert

 private:
  MoeConfig config_;
};

}  // namespace dtorch::nn
