// The local steps of ring attention. Not for users.
#pragma once
#include "ops/def/operator_def.h"

namespace dtorch {

extern OperatorDef ring_attention_step_op, ring_attention_grad_step_op;

namespace nn_ops {

struct RingAttrs {
  bool is_causal = false;
  double scale = 1.0;
  template <class V>
  void fields(V& v) {
    v("is_causal", is_causal);
    v("scale", scale);
  }
};

}  // namespace nn_ops
}  // namespace dtorch
