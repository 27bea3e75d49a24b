// What kernels of this room share. Empty in builds without kernels.
#pragma once
#include "dtorch/kernel.h"
#include "ops/create/checked_index.h"

#if DTORCH_WITH_KERNELS
#include <string>

namespace dtorch::indexing {

// Contiguous int64 positions, each checked against the whole dim, whatever part this device holds. wraps: negative ones
// count from the end. May share `index`'s memory.
inline at::Tensor checked_positions(const at::Tensor& index, int64_t size, bool wraps) {
  at::Tensor positions = index.to(at::kLong).contiguous();
  const int64_t first = wraps ? -size : 0;
  if (!positions.is_cpu()) {
    positions = checked_on_device(positions, first, size, "index");
    return wraps ? positions.add(positions.lt(0).to(at::kLong), size) : positions;
  }
  const int64_t* data = positions.const_data_ptr<int64_t>();
  bool negative = false;
  for (int64_t i = 0; i < positions.numel(); ++i) {
    if (data[i] < first || data[i] >= size) {
      throw RuntimeFault("index " + std::to_string(data[i]) + " is outside [" + std::to_string(first) + ", " +
                         std::to_string(size) + ")");
    }
    negative |= data[i] < 0;
  }
  return negative ? positions.add(positions.lt(0).to(at::kLong), size) : positions;
}

// Adding it changes no value, not even the sign of a zero.
inline at::Scalar identity_of_sum(DType dtype) { return is_floating(dtype) ? at::Scalar(-0.0) : at::Scalar(0); }

// Input 0 itself when output 0 may take over its memory, else a contiguous copy.
inline at::Tensor writable_input(KernelContext& context) {
  const at::Tensor& x = input(context, 0);
  const bool own = context.may_reuse(0) && context.input_meta(0).dtype == context.output_meta(0).dtype &&
                   context.input_box(0).size == context.output_box(0).size && x.is_contiguous();
  return own ? x : x.clone(at::MemoryFormat::Contiguous);
}

}  // namespace dtorch::indexing
#endif
