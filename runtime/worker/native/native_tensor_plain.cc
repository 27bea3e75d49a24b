// NativeTensor without LibTorch: impl_ is one reference to a View of a counted Storage.
#include "ops/def/native_tensor.h"
#include "runtime/base/intrusive.h"
#include "runtime/worker/native/native_memory.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch {
namespace {

struct Storage : RefCounted {
  explicit Storage(size_t bytes) {
    // Also an empty storage has an address.
    block = allocate_counted(bytes);
    if (!block) throw OutOfMemory(bytes);
  }
  Storage(void* data, size_t bytes, void* data_context, void (*free_data)(void*))
      : block(data), num_bytes(static_cast<int64_t>(bytes)), context(data_context), release(free_data) {}
  ~Storage() { release != nullptr ? release(context) : free_counted(block); }
  int64_t bytes() const { return release != nullptr ? num_bytes : counted_size(block); }
  void* block = nullptr;
  // Of memory that somebody else made.
  int64_t num_bytes = 0;
  void* context = nullptr;
  void (*release)(void*) = nullptr;
};

struct View : RefCounted {
  IntrusivePtr<Storage> storage;
  int64_t offset = 0;  // in elements
  Shape local_shape, strides;
  DType dtype = kFloat32;
};

View* view_of(const NativeTensor& tensor) {
  DTORCH_CHECK(tensor.impl() != nullptr, "an empty NativeTensor has no value");
  return static_cast<View*>(tensor.impl());
}

NativeTensor adopt_view(View* view) {
  view->add_ref();
  return NativeTensor::adopt(view);
}

NativeTensor contiguous_view(IntrusivePtr<Storage> storage, const Shape& local_shape, DType dtype) {
  auto* view = new View;
  view->storage = std::move(storage);
  view->local_shape = local_shape;
  view->strides = contiguous_strides(local_shape);
  view->dtype = dtype;
  return adopt_view(view);
}

}  // namespace

void count_allocations() {}

void charge_storage(const NativeTensor& tensor, MemoryCounter& counter) {
  const Storage& storage = *view_of(tensor)->storage;
  if (storage.release == nullptr) charge_block(storage.block, counter);
}

NativeTensor::NativeTensor(const NativeTensor& other) : impl_(other.impl_) {
  if (impl_) static_cast<View*>(impl_)->add_ref();
}

void NativeTensor::reset() {
  auto* view = static_cast<View*>(std::exchange(impl_, nullptr));
  if (view && view->drop_ref()) delete view;
}

NativeTensor NativeTensor::empty(const Shape& local_shape, DType dtype) {
  auto storage = make_intrusive<Storage>(static_cast<size_t>(local_shape.num_elements() * size_of(dtype)));
  return contiguous_view(std::move(storage), local_shape, dtype);
}

NativeTensor tensor_over(void* data, size_t bytes, void* context, void (*release)(void*), const Shape& local_shape,
                         DType dtype) {
  return contiguous_view(make_intrusive<Storage>(data, bytes, context, release), local_shape, dtype);
}

bool has_metadata(const NativeTensor& tensor, const Shape& local_shape, DType dtype) {
  const auto* view = static_cast<const View*>(tensor.impl());
  return view && view->local_shape == local_shape && view->dtype == dtype;
}

Shape NativeTensor::local_shape() const { return view_of(*this)->local_shape; }
Shape NativeTensor::strides() const { return view_of(*this)->strides; }
DType NativeTensor::dtype() const { return view_of(*this)->dtype; }

std::byte* NativeTensor::data() const {
  View* view = view_of(*this);
  return static_cast<std::byte*>(view->storage->block) + view->offset * size_of(view->dtype);
}

bool NativeTensor::is_contiguous() const {
  View* view = view_of(*this);
  Shape expected = contiguous_strides(view->local_shape);
  for (int64_t dim = 0; dim < expected.size(); ++dim) {
    if (view->local_shape[dim] == 0) return true;
  }
  for (int64_t dim = 0; dim < expected.size(); ++dim) {
    if (view->local_shape[dim] != 1 && view->strides[dim] != expected[dim]) return false;
  }
  return true;
}

bool NativeTensor::is_sole_owner() const {
  View* view = view_of(*this);
  return view->ref_count() == 1 && view->storage->ref_count() == 1;
}

bool NativeTensor::is_reusable() const {
  View* view = view_of(*this);
  return view->offset == 0 && (!is_contiguous() || view->strides == contiguous_strides(view->local_shape)) &&
         is_sole_owner();
}

void make_strides_canonical(NativeTensor& tensor) {
  if (tensor.is_contiguous()) tensor = tensor.contiguous();
}

const void* storage_of(const NativeTensor& tensor) { return view_of(tensor)->storage->block; }

int64_t NativeTensor::storage_bytes() const { return view_of(*this)->storage->bytes(); }

NativeTensor strided_view(const NativeTensor& base, const Shape& local_shape, const Shape& strides, int64_t offset) {
  View* source = view_of(base);
  auto* view = new View;
  view->storage = source->storage;
  view->offset = source->offset + offset;
  view->local_shape = local_shape;
  view->strides = strides;
  view->dtype = source->dtype;
  return adopt_view(view);
}

NativeTensor NativeTensor::narrowed(const Box& local_box) const {
  View* source = view_of(*this);
  DTORCH_CHECK(whole(source->local_shape).contains(local_box), local_box.str() + " of " + str());
  auto* view = new View;
  view->storage = source->storage;
  view->offset = source->offset;
  for (int64_t dim = 0; dim < local_box.ndim(); ++dim) view->offset += local_box.offset[dim] * source->strides[dim];
  view->local_shape = local_box.size;
  view->strides = source->strides;
  view->dtype = source->dtype;
  return adopt_view(view);
}

}  // namespace dtorch
