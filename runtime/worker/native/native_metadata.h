// Cheap questions about a NativeTensor's metadata that the worker asks after every kernel.
#pragma once
#include "ops/def/native_tensor.h"

namespace dtorch {

// Where its storage begins: the same for all views of it. Null for some that are empty.
const void* storage_of(const NativeTensor& tensor);
// False also for an empty handle.
bool has_metadata(const NativeTensor& tensor, const Shape& local_shape, DType dtype);

// A view of `base`'s storage with these strides, whose first element is `offset` elements behind that of `base`. All of
// it must lie within the storage.
NativeTensor strided_view(const NativeTensor& base, const Shape& local_shape, const Shape& strides, int64_t offset);

// A contiguous tensor over host memory that somebody else made: `release` is called with `context`, once, when the last
// handle goes, on any thread. Charged to nobody.
NativeTensor tensor_over(void* data, size_t bytes, void* context, void (*release)(void*), const Shape& local_shape,
                         DType dtype);

// Gives a contiguous tensor the strides of a new one: dims of size 1 may have any, and LibTorch asks for them in
// places. So it doesn't show in a value which way a call took to its result.
void make_strides_canonical(NativeTensor& tensor);

}  // namespace dtorch
