// Tensors of the GPU's memory that are charged to a device's counter. Thread-safe.
#pragma once
#include <c10/core/Allocator.h>

#include "ops/def/native_tensor.h"

namespace dtorch {
struct MemoryCounter;
}

namespace dtorch::cuda {

// On the thread's current stream. Throws OutOfMemory.
NativeTensor new_tensor(const Shape& local_shape, DType dtype, int device, MemoryCounter* memory);
// Charges a tensor that a kernel has made; does nothing when its storage is charged, or others hold it.
void charge(const NativeTensor& tensor, MemoryCounter& memory);
// The allocator's own pointer of a tensor's storage, which it needs to recognise it.
const c10::DataPtr& allocation_of(const NativeTensor& tensor);
bool is_on_host(const NativeTensor& tensor);
int device_of(const NativeTensor& tensor);

}  // namespace dtorch::cuda
