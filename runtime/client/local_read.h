// The read of one device's part that doesn't wait, so that many can be under way: Tensor::to_host_local in two steps.
#pragma once
#include "runtime/client/tensor.h"

namespace dtorch {

// Throws MeshError when the device isn't in the tensor's mesh.
TensorFuture read_local_async(const Tensor& tensor, int64_t device, Where where = Where::current());

}  // namespace dtorch
