// Memory of a fake device, in the order of its streams.
#pragma once
#include <memory>

#include "runtime/accelerator/fake/fake_driver.h"

namespace dtorch::fake {

// Contiguous, filled with what is no number. When its last handle goes the memory is overwritten, and freed, in the
// order of `owner`, after what streams it was shared with had been given by then. Throws OutOfMemory.
NativeTensor allocate(Driver& driver, const std::shared_ptr<Driver::Queue>& owner, const Shape& local_shape,
                      DType dtype, MemoryCounter* memory);
// The value's memory, when it is of a fake device, is used by `user`, too.
void share(const NativeTensor& value, const std::shared_ptr<Driver::Queue>& user);
// Whether it is a fake device's memory; what has no elements is anybody's.
bool is_of_device(const NativeTensor& value);
// The same bytes for what a stream does later: no handle, as a GPU's work has none, so that nothing here keeps a value
// from dying or from being taken over. What isn't of a fake device is held.
NativeTensor memory_of(const NativeTensor& value);
// The same of bytes of a fake device's memory. Throws InternalError when it isn't, or not all of it.
NativeTensor memory_at(const std::byte* data, int64_t num_bytes);

}  // namespace dtorch::fake
