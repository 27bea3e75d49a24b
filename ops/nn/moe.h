// User-facing operators of a mixture of experts; nn/moe.h composes them. All throw ShapeError, DTypeError or
// PlacementError at the call.
#pragma once
#include "runtime/client/tensor.h"

namespace dtorch {

struct MoeGates {
  Tensor gates;   // [..., E]: weights of the chosen experts, which add up to 1; 0 elsewhere
  Tensor chosen;  // [..., E] bool
};
// Of each row of probabilities [..., E] the k largest (of equal ones the first), divided by their sum.
MoeGates topk_gates(const Tensor& probabilities, int64_t k, Where where = Where::current());

// x [..., D], gates [..., E], w1 and w3 [E, F, D], w2 [E, O, F] -> [..., O]: for each token the sum over experts of
// gate * w2 (silu(w1 x) * w3 x). Experts with gate 0 aren't computed. Sharding experts or F gives Partial(sum).
Tensor moe_experts(const Tensor& x, const Tensor& gates, const Tensor& w1, const Tensor& w3, const Tensor& w2,
                   Where where = Where::current());

// moe_experts for experts that may be split over axes that split tokens too; the result lies as x on those, and pending
// where F is sharded. With one such axis, along which tokens travel to the devices of the experts that they chose and
// back; otherwise the tokens are gathered over it.
Tensor expert_parallel(const Tensor& x, const Tensor& gates, const Tensor& w1, const Tensor& w3, const Tensor& w2,
                       Where where = Where::current());

}  // namespace dtorch
