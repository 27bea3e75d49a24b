// Cheap questions about a NativeTensor's metadata that the worker asks after every kernel.
#pragma once
#include "ops/def/native_tensor.h"

namespace dtorch {

// False also for an empty handle.
bool has_metadata(const NativeTensor& tensor, const Shape& local_shape, DType dtype);

}  // namespace dtorch
