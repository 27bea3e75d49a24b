// NativeTensor over LibTorch: impl_ is one reference to a c10::TensorImpl.
#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>

#include "dtorch/kernel.h"
#include "runtime/worker/native/native_memory.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch {
namespace {

void free_block(void* block) { free_counted(block); }

// LibTorch's CPU allocator while DTorch runs: counts for the device whose thread allocates.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_block, c10::Device(c10::DeviceType::CPU)};
    void* block = allocate_counted(bytes);
    if (!block) throw OutOfMemory(bytes);
    return {block, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* destination, const void* source, std::size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

c10::TensorImpl* impl_of(const NativeTensor& tensor) {
  DTORCH_CHECK(tensor.impl() != nullptr, "an empty NativeTensor has no value");
  return static_cast<c10::TensorImpl*>(tensor.impl());
}

Shape to_shape(c10::IntArrayRef sizes) { return Shape(sizes.begin(), sizes.end()); }

}  // namespace

void count_allocations() {
  static std::once_flag once;
  std::call_once(once, [] {
    static auto* allocator = new CountingAllocator;
    c10::SetCPUAllocator(allocator, 255);
  });
}

void charge_storage(const NativeTensor& tensor, MemoryCounter& counter) {
  const c10::DataPtr& data = impl_of(tensor)->storage().data_ptr();
  if (data.get_deleter() == &free_block && data.get_context()) charge_block(data.get_context(), counter);
}

NativeTensor::NativeTensor(const NativeTensor& other) : impl_(other.impl_) {
  if (impl_) c10::raw::intrusive_ptr::incref(static_cast<c10::TensorImpl*>(impl_));
}

void NativeTensor::reset() {
  if (impl_) c10::raw::intrusive_ptr::decref(static_cast<c10::TensorImpl*>(std::exchange(impl_, nullptr)));
}

NativeTensor NativeTensor::empty(const Shape& local_shape, DType dtype) {
  count_allocations();
  at::TensorBase tensor = at::detail::empty_cpu(sizes_of(local_shape), scalar_type(dtype));
  return adopt(tensor.unsafeReleaseTensorImpl());
}

NativeTensor tensor_over(void* data, size_t bytes, void* context, void (*release)(void*), const Shape& local_shape,
                         DType dtype) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(data, context, release, c10::Device(c10::DeviceType::CPU)));
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(scalar_type(dtype)));
  impl->set_sizes_contiguous(sizes_of(local_shape));
  return NativeTensor::adopt(impl.release());
}

bool has_metadata(const NativeTensor& tensor, const Shape& local_shape, DType dtype) {
  const auto* impl = static_cast<const c10::TensorImpl*>(tensor.impl());
  if (!impl || !impl->dtype().isScalarType(scalar_type(dtype))) return false;
  const c10::IntArrayRef sizes = impl->sizes();
  if (static_cast<int64_t>(sizes.size()) != local_shape.ndim()) return false;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] != local_shape[static_cast<int64_t>(dim)]) return false;
  }
  return true;
}

Shape NativeTensor::local_shape() const { return to_shape(impl_of(*this)->sizes()); }
Shape NativeTensor::strides() const { return to_shape(impl_of(*this)->strides()); }
DType NativeTensor::dtype() const { return dtype_from(c10::typeMetaToScalarType(impl_of(*this)->dtype())); }
std::byte* NativeTensor::data() const { return static_cast<std::byte*>(impl_of(*this)->mutable_data()); }
bool NativeTensor::is_contiguous() const { return impl_of(*this)->is_contiguous(); }

bool NativeTensor::is_sole_owner() const {
  c10::TensorImpl* impl = impl_of(*this);
  if (c10::raw::intrusive_ptr::use_count(impl) != 1 || impl->unsafe_storage().use_count() != 1) return false;
  // LibTorch reads its counts relaxed; whoever dropped the other handles has finished with the memory.
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

static bool has_canonical_strides(const c10::TensorImpl& impl) {
  const c10::IntArrayRef sizes = impl.sizes(), strides = impl.strides();
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0; expected *= std::max<int64_t>(sizes[dim], 1)) {
    if (strides[dim] != expected) return false;
  }
  return true;
}

bool NativeTensor::is_reusable() const {
  const c10::TensorImpl& impl = *impl_of(*this);
  return impl.storage_offset() == 0 && (!impl.is_contiguous() || has_canonical_strides(impl)) && is_sole_owner();
}

void make_strides_canonical(NativeTensor& tensor) {
  const c10::TensorImpl& impl = *impl_of(tensor);
  if (impl.is_contiguous() && !has_canonical_strides(impl)) tensor = tensor.contiguous();
}

const void* storage_of(const NativeTensor& tensor) { return impl_of(tensor)->storage().data(); }

int64_t NativeTensor::storage_bytes() const { return static_cast<int64_t>(impl_of(*this)->storage().nbytes()); }

NativeTensor strided_view(const NativeTensor& base, const Shape& local_shape, const Shape& strides, int64_t offset) {
  c10::TensorImpl* impl = impl_of(base);
  auto view = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(impl->storage()),
                                                   impl->key_set(), impl->dtype());
  view->set_storage_offset(impl->storage_offset() + offset);
  view->set_sizes_and_strides(sizes_of(local_shape), sizes_of(strides));
  return NativeTensor::adopt(view.release());
}

NativeTensor NativeTensor::narrowed(const Box& local_box) const {
  c10::TensorImpl* impl = impl_of(*this);
  DTORCH_CHECK(whole(local_shape()).contains(local_box), local_box.str() + " of " + str());
  auto view = c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(impl->storage()),
                                                   impl->key_set(), impl->dtype());
  int64_t offset = impl->storage_offset();
  for (int64_t dim = 0; dim < local_box.ndim(); ++dim) offset += local_box.offset[dim] * impl->stride(dim);
  view->set_storage_offset(offset);
  view->set_sizes_and_strides(sizes_of(local_box.size), impl->strides());
  return adopt(view.release());
}

}  // namespace dtorch
