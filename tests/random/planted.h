// Operators with faults, which random programs must find.
#pragma once
#include "runtime/client/tensor.h"

namespace dtorch::test {

void register_planted_operators();  // before the job starts

// x * x, whose rule says that pending parts may be squared one by one.
Tensor square_of_parts(const Tensor& x);
// x + 1, with a rule that is right and the gradient 2 g on three devices.
Tensor wrong_gradient(const Tensor& x);

}  // namespace dtorch::test
