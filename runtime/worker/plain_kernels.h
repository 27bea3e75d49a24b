// Kernels of the DTORCH_KERNELS=none build: enough arithmetic to run the whole pipeline with values that a test can
// check.
#pragma once
#include <string_view>

#include "ops/def/operator_def.h"

namespace dtorch {

// The kernel of an operator by name. Operators that aren't in the table get one that fills their outputs with zeros;
// never null.
KernelFn plain_kernel(std::string_view name);

}  // namespace dtorch
