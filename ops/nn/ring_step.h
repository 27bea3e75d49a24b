// The local steps of ring attention. Not for users.
#pragma once
#include "ops/def/operator_def.h"

namespace dtorch {

extern OperatorDef ring_attention_step_op, ring_attention_grad_step_op, ring_split_op, ring_join_op;

namespace nn_ops {

struct RingAttrs {
  bool is_causal = false;
  double scale = 1.0;
  int64_t axis = 0;    // of the ring, in the meshes of q and k
  int64_t pieces = 1;  // of a block, as in RingPlan
  int64_t q_piece = 0, k_piece = 0;
  bool has_sum = false;            // what earlier steps gave for these queries is an input
  bool has_key_gradients = false;  // of the gradient: likewise for these keys
  template <class V>
  void fields(V& v) {
    v("is_causal", is_causal);
    v("scale", scale);
    v("axis", axis);
    v("pieces", pieces);
    v("q_piece", q_piece);
    v("k_piece", k_piece);
    v("has_sum", has_sum);
    v("has_key_gradients", has_key_gradients);
  }
};

struct RingSplitAttrs {
  int64_t blocks = 1;  // positions of the ring
  template <class V>
  void fields(V& v) {
    v("blocks", blocks);
  }
};

}  // namespace nn_ops
}  // namespace dtorch
