// The arithmetic of experts on one device, shared by moe_experts and by what computes packed rows. Private to this
// room.
#pragma once
#include "ops/nn/operators.h"

namespace dtorch::moe {

// Throws ShapeError or DTypeError unless the inputs from `x_at` on are x, gates, w1, w3 and w2 that fit.
void check_operands(const InferContext& context, size_t x_at);

}  // namespace dtorch::moe

#if DTORCH_WITH_KERNELS
#include <ATen/core/Tensor.h>

#include <array>

namespace dtorch::moe {

struct Weights {
  const at::Tensor &w1, &w3, &w2;  // [E, F, D], [E, F, D], [E, O, F]
};
// x [N, D], gates [N, E] -> [N, O]: for each row the sum over experts with a gate that isn't 0.
at::Tensor experts(const at::Tensor& x, const at::Tensor& gates, const Weights& weights);

struct Gradients {
  at::Tensor x, gates, w1, w3, w2;
};
// Added to `sums`: of x and gates rows that went to an expert; of the weights an expert's part is overwritten.
void experts_grad(const at::Tensor& g, const at::Tensor& x, const at::Tensor& gates, const Weights& weights,
                  Gradients& sums);

}  // namespace dtorch::moe
#endif
