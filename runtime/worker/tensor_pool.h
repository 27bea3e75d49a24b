// TensorPool: small tensors of one compute stream that died and wait to be results again, so that a call with a
// prepared kernel allocates nothing. What waits isn't counted as in use; it is at most kMaxBytes a stream.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "ops/def/native_tensor.h"
#include "runtime/worker/native/native_memory.h"

namespace dtorch {

class TensorPool {
 public:
  static constexpr int64_t kMaxTensorBytes = 64 << 10;  // larger ones are the allocator's
  static constexpr int64_t kMaxBytes = 2 << 20;         // of all that wait

  // The contiguous tensors of one local shape and dtype.
  struct Kind {
    Shape local_shape;
    DType dtype = kFloat32;
    int64_t num_bytes = 0;
    bool is_small = false;
    std::vector<NativeTensor> waiting;
  };

  // memory: of the device; outlives the pool.
  explicit TensorPool(MemoryCounter& memory) : memory_(memory) {}
  ~TensorPool();
  TensorPool(const TensorPool&) = delete;
  TensorPool& operator=(const TensorPool&) = delete;

  // The Sub-Controller's thread, before a stream sees what it gives; lives as long as the pool.
  Kind& kind_of(const Shape& local_shape, DType dtype);

  // By the device's stream, as what follows. One that waits, else a new one. Throws RuntimeFault when memory is short.
  NativeTensor take(Kind& kind) {
    if (kind.waiting.empty()) return NativeTensor::empty(kind.local_shape, kind.dtype);
    NativeTensor tensor = std::move(kind.waiting.back());
    kind.waiting.pop_back();
    waiting_bytes_ -= kind.num_bytes;
    memory_.add(kind.num_bytes);
    return tensor;
  }
  // A tensor that take() gave and that nobody else holds. It is freed when there is no room for it.
  void give_back(Kind& kind, NativeTensor tensor) {
    if (!kind.is_small || waiting_bytes_ + kind.num_bytes > kMaxBytes) return;
    waiting_bytes_ += kind.num_bytes;
    memory_.remove(kind.num_bytes);
    kind.waiting.push_back(std::move(tensor));
  }

 private:
  MemoryCounter& memory_;
  std::deque<Kind> kinds_;
  int64_t waiting_bytes_ = 0;
};

}  // namespace dtorch
