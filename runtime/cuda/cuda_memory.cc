#include "runtime/cuda/cuda_memory.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include "dtorch/kernel.h"
#include "runtime/worker/native/native_memory.h"

namespace dtorch::cuda {
namespace {

// What a charged storage holds in place of the allocator's pointer.
struct Charged {
  c10::DataPtr memory;
  MemoryCounter& counter;
  int64_t bytes;
};

void free_charged(void* context) {
  auto* charged = static_cast<Charged*>(context);
  charged->counter.remove(charged->bytes);
  delete charged;
}

c10::DataPtr charged(c10::DataPtr memory, MemoryCounter* counter, size_t bytes) {
  if (counter == nullptr || bytes == 0) return memory;
  void* const data = memory.get();
  const c10::Device device = memory.device();
  counter->add(static_cast<int64_t>(bytes));
  return {data, new Charged{std::move(memory), *counter, static_cast<int64_t>(bytes)}, &free_charged, device};
}

}  // namespace

NativeTensor new_tensor(const Shape& local_shape, DType dtype, int device, MemoryCounter* memory) {
  const auto bytes = static_cast<size_t>(local_shape.num_elements() * size_of(dtype));
  c10::DataPtr data;
  try {
    data = c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  } catch (const c10::OutOfMemoryError&) {
    throw OutOfMemory(bytes);
  }
  DTORCH_CHECK(bytes == 0 || data.device().index() == device, "memory of another GPU than the stream's");
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, charged(std::move(data), memory, bytes), nullptr, false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                   c10::scalarTypeToTypeMeta(scalar_type(dtype)));
  impl->set_sizes_contiguous(sizes_of(local_shape));
  return NativeTensor::adopt(impl.release());
}

void charge(const NativeTensor& tensor, MemoryCounter& memory) {
  const c10::Storage& storage = as_aten(tensor).storage();
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  if (storage.use_count() != 1 || impl->data_ptr().get_deleter() == &free_charged) return;
  c10::DataPtr own = impl->set_data_ptr(c10::DataPtr());
  impl->set_data_ptr_noswap(charged(std::move(own), &memory, impl->nbytes()));
}

const c10::DataPtr& allocation_of(const NativeTensor& tensor) {
  const c10::DataPtr& data = as_aten(tensor).storage().data_ptr();
  return data.get_deleter() == &free_charged ? static_cast<const Charged*>(data.get_context())->memory : data;
}

bool is_on_host(const NativeTensor& tensor) { return as_aten(tensor).is_cpu(); }
int device_of(const NativeTensor& tensor) { return as_aten(tensor).get_device(); }

}  // namespace dtorch::cuda
