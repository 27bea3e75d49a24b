// An operator of the tests' own whose kernel fails on one device.
#pragma once
#include "dtorch/dtorch.h"

namespace dtorch::test {

// Must be called in main before the job starts.
void register_failing_operator();

// x itself; the kernel throws std::runtime_error("deliberate") on `device`.
Tensor fail_on(const Tensor& x, int64_t device, Where where = Where::current());

}  // namespace dtorch::test
