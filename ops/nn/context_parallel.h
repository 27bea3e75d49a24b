// Attention whose sequence is split over mesh axes named `ulysses_cp` (or `ulysess_cp`) and `ring_cp`. Not for users:
// scaled_dot_product_attention comes here by itself.
#pragma once
#include "ops/nn/functions.h"

namespace dtorch::nn_ops {

// Whether a dim of q [B, H, T, D] that attention needs whole is split over an axis of such a name, of one mesh for all.
bool is_context_parallel(const Tensor& q, const Tensor& k, const Tensor& v);
// The operands' shapes and dtypes must have been checked.
Tensor context_parallel_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal, double scale,
                                  RingOrder order, const Where& where);

}  // namespace dtorch::nn_ops
