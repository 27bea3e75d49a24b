// Cheap questions about a NativeTensor's metadata that the worker asks after every kernel.
#pragma once
#include "ops/def/native_tensor.h"

namespace dtorch {

// False also for an empty handle.
// Where its storage begins: the same for all views of it. Null for some that are empty.
const void* storage_of(const NativeTensor& tensor);
bool has_metadata(const NativeTensor& tensor, const Shape& local_shape, DType dtype);

// A view of `base`'s storage with these strides, whose first element is `offset` elements behind that of `base`. All of
// it must lie within the storage.
NativeTensor strided_view(const NativeTensor& base, const Shape& local_shape, const Shape& strides, int64_t offset);

}  // namespace dtorch
