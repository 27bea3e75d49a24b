#include "runtime/worker/tensor_pool.h"

namespace dtorch {

TensorPool::~TensorPool() {
  // The allocator takes them off the device's account.
  for (Kind& kind : kinds_) {
    for (size_t i = 0; i < kind.waiting.size(); ++i) memory_.add(kind.num_bytes);
  }
}

TensorPool::Kind& TensorPool::kind_of(const Shape& local_shape, DType dtype) {
  for (Kind& kind : kinds_) {
    if (kind.dtype == dtype && kind.local_shape == local_shape) return kind;
  }
  Kind& kind = kinds_.emplace_back();
  kind.local_shape = local_shape;
  kind.dtype = dtype;
  kind.num_bytes = local_shape.num_elements() * size_of(dtype);
  kind.is_small = kind.num_bytes > 0 && kind.num_bytes <= kMaxTensorBytes;
  return kind;
}

}  // namespace dtorch
