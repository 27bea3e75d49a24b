// Where a box of a tensor lies in memory. Inside runtime/comm only.
#pragma once
#include "mesh/shape.h"
#include "ops/def/native_tensor.h"

namespace dtorch {

// Number of elements before the box's first, when the box is one run of memory of a contiguous tensor; else -1.
inline int64_t contiguous_offset(const Shape& shape, const Box& box) {
  bool cut = false;  // a dim further in was cut: those outside must have size 1
  int64_t offset = 0;
  int64_t stride = 1;
  for (int64_t dim = shape.ndim() - 1; dim >= 0; --dim) {
    if (cut && box.size[dim] != 1) return -1;
    cut = cut || box.size[dim] != shape[dim];
    offset += box.offset[dim] * stride;
    stride *= shape[dim];
  }
  return offset;
}

// The memory of a box of a tensor, or null where it isn't one run.
inline std::byte* memory_of(const NativeTensor& tensor, const Box& box) {
  if (!tensor.is_contiguous()) return nullptr;
  const int64_t offset = contiguous_offset(tensor.local_shape(), box);
  return offset < 0 ? nullptr : tensor.data() + offset * size_of(tensor.dtype());
}

}  // namespace dtorch
