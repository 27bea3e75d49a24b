// What products share: rules from letters, and the contraction that gradients of weights are. Private to this room.
#pragma once
#include <vector>

#include "ops/math/operators.h"

namespace dtorch::math {

std::vector<OperatorDef*> contraction_operators();

// One row a letter: Shard wherever it stands (an operand without it: Replicate); a letter that the output lacks gives
// Partial(sum).
Rule letters_rule(std::vector<Letters> inputs, const Letters& output);
// Any one of the first `num_factors` inputs Partial (sum, avg), the others Replicate -> Partial.
void add_multilinear_rows(size_t num_factors, Rule* rule);
// Products need one dtype; throws DTypeError that names both.
void refuse_mixed_dtypes(const InferContext& context);

// a [..., X] and b [..., Y] with equal leading dims -> [X, Y], summed over all of them (pending where they are
// sharded).
Tensor contract_leading(const Tensor& a, const Tensor& b, Where where = Where::current());

}  // namespace dtorch::math
