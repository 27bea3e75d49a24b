// NativeTensor: this device's part of a tensor, as kernels and the data plane see it: a view (storage, local shape,
// strides) of a counted storage (D2). With LibTorch it is an at::Tensor inside (native_tensor_aten.cc in
// runtime/worker), without it plain memory (native_tensor_plain.cc); this header knows neither. A handle of one
// pointer: cheap to copy, copies share the storage.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "mesh/dtype.h"
#include "mesh/shape.h"

namespace dtorch {

class NativeTensor {
 public:
  NativeTensor() = default;
  NativeTensor(const NativeTensor& other);
  NativeTensor(NativeTensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  NativeTensor& operator=(NativeTensor other) noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  ~NativeTensor() {
    if (impl_) reset();
  }
  void reset();

  // Uninitialised, contiguous. Throws RuntimeFault when memory is short.
  static NativeTensor empty(const Shape& local_shape, DType dtype);

  explicit operator bool() const { return impl_ != nullptr; }
  Shape local_shape() const;
  Shape strides() const;  // in elements
  DType dtype() const;
  std::byte* data() const;  // first element of the view
  bool is_contiguous() const;
  int64_t num_elements() const { return local_shape().num_elements(); }
  int64_t num_bytes() const { return num_elements() * size_of(dtype()); }
  // True when nobody else holds this handle's view or its storage.
  bool is_sole_owner() const;
  // True when a result may take this tensor's place: nobody else holds it, it begins where its storage does and, where
  // it is contiguous, has the strides of a new tensor (dims of size 1 may have others). A result in it then lies as in
  // new memory, so that what else was held at that moment shows nowhere.
  bool is_reusable() const;
  // Bytes of the whole storage, for memory accounting.
  int64_t storage_bytes() const;

  // A view of one box (in coordinates of this tensor); shares the storage.
  NativeTensor narrowed(const Box& local_box) const;
  NativeTensor contiguous() const;  // itself when it is, or its view with the strides of a new tensor
  std::string str() const;          // "float32 [2, 3]"

  // The wrapped object's address as an opaque word; only dtorch/kernel.h and native_tensor_*.cc interpret it.
  void* impl() const { return impl_; }
  static NativeTensor adopt(void* impl) {  // takes over one reference
    NativeTensor tensor;
    tensor.impl_ = impl;
    return tensor;
  }

 private:
  void* impl_ = nullptr;
};

// Copies a box of `source` (in source's local coordinates) onto a box of `destination` (local coordinates, same sizes,
// same dtype); any strides.
void copy_box(const NativeTensor& source, const Box& source_box, const NativeTensor& destination,
              const Box& destination_box);
// Between a box of a tensor and packed row-major memory.
void pack_box(const NativeTensor& source, const Box& box, std::byte* packed);
void unpack_box(const std::byte* packed, const NativeTensor& destination, const Box& box);

// Memory that NativeTensors hold in this process, in bytes.
int64_t native_bytes_in_use();

}  // namespace dtorch
