// An operator of the tests' own whose kernel gives another value on one device: what --check-replicas must find.
#pragma once
#include "dtorch/dtorch.h"

namespace dtorch::test {

// Must be called in main before the job starts.
void register_diverging_operator();

// x itself (float32); on `device` the first element of its part is one more.
Tensor diverge_on(const Tensor& x, int64_t device, Where where = Where::current());

}  // namespace dtorch::test
