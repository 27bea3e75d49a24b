// explain(): where a tensor comes from and what its redistributions cost. Called by the Graph's user thread.
#pragma once
#include <string>

#include "runtime/client/tensor.h"

namespace dtorch {

// The operators that lead to `tensor` since the last read, each with its source line; redistributions with the plan's
// steps, bytes a device and peak memory; what DTorch inserted says for which operator. Without set_explain(true) (or
// --explain) only the tensor's own operator is known. Reads nothing and moves nothing.
std::string explain(const Tensor& tensor);

}  // namespace dtorch
