// Classes that a device has of a loss's input. Private to this room; empty in builds without kernels.
#pragma once
#include "ops/create/checked_index.h"

#if DTORCH_WITH_KERNELS
#include <utility>

namespace dtorch::loss {

inline bool is_half(const at::Tensor& x) { return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16; }
inline at::Tensor wide(const at::Tensor& x) { return (is_half(x) ? x.to(at::kFloat) : x).contiguous(); }

// A part of input [outer, classes first .. first + count, inner] and its targets [outer, inner].
struct LocalClasses {
  LocalClasses(const KernelContext& context, size_t x, int64_t dim, int64_t ignored) : ignore_index(ignored) {
    const Box& box = context.input_box(x);
    first = box.offset[dim];
    count = box.size[dim];
    for (int64_t d = dim + 1; d < box.ndim(); ++d) inner *= box.size[d];
    targets = checked_targets(input(context, x + 1), ignore_index, context.input_meta(x).global_shape[dim]);
    if (context.num_inputs() > x + 2) weight = wide(input(context, x + 2));
  }
  // f(row, place in input, local class) of each row whose target is one of these classes.
  template <class F>
  void for_each(F&& f) const {
    const int64_t* data = targets.const_data_ptr<int64_t>();
    for (int64_t row = 0; row < targets.numel(); ++row) {
      const int64_t local = data[row] - first;
      if (data[row] == ignore_index || local < 0 || local >= count) continue;
      f(row, (row / inner * count + local) * inner + row % inner, local);
    }
  }
  // The same as tensors, for other devices than the CPU: classes inside, and where there is none.
  std::pair<at::Tensor, at::Tensor> inside() const {
    const at::Tensor local = targets.sub(first), clamped = local.clamp(0, count - 1);
    return {clamped, local.ne(clamped).logical_or_(targets.eq(ignore_index))};
  }
  // Of these classes' weights one for each of `local`.
  at::Tensor weights_of(const at::Tensor& local) const {
    return weight.index_select(0, local.view({-1})).view(local.sizes());
  }
  int64_t first = 0, count = 0, inner = 1, ignore_index = 0;
  at::Tensor targets, weight;  // weight may be undefined
};

}  // namespace dtorch::loss
#endif
