// This device's positions of the index tensors of index and index_put. Empty in builds without kernels.
#pragma once
#include "ops/index/kernels.h"
#include "ops/index/operators.h"

#if DTORCH_WITH_KERNELS
namespace dtorch::indexing {

struct LocalPositions {
  std::vector<at::Tensor> positions;  // int64, in this device's part of x, one an indexed dim
  at::Tensor held;  // bool: the element is in the part; undefined when all are. Others' positions are clamped.
};

// Of inputs 1, 2, ... of x, input 0; attributes: IndexAttrs.
inline LocalPositions local_positions(const KernelContext& context) {
  const auto& attributes = context.attributes<IndexAttrs>();
  const Shape& shape = context.input_meta(0).global_shape;
  const Box& box = context.input_box(0);
  std::vector<at::Tensor> global(attributes.dims.size());
  if (attributes.flat) {
    at::Tensor rest = checked_positions(input(context, 1), shape.num_elements(), attributes.wraps);
    for (size_t d = global.size(); d-- > 0;) {
      const int64_t size = std::max<int64_t>(1, shape[static_cast<int64_t>(d)]);
      global[d] = rest.remainder(size);
      rest = rest.div(size, "floor");
    }
  } else {
    for (size_t i = 0; i < global.size(); ++i)
      global[i] = checked_positions(input(context, i + 1), shape[attributes.dims[i]], attributes.wraps);
  }
  LocalPositions local;
  for (size_t i = 0; i < global.size(); ++i) {
    const int64_t d = attributes.dims[i];
    if (box.size[d] != shape[d]) {
      const at::Tensor position = global[i].sub(box.offset[d]);
      const at::Tensor inside = position.ge(0).logical_and_(position.lt(box.size[d]));
      local.held = local.held.defined() ? local.held.logical_and(inside) : inside;
      global[i] = position.clamp(0, std::max<int64_t>(0, box.size[d] - 1));
    }
    local.positions.push_back(global[i]);
  }
  return local;
}

}  // namespace dtorch::indexing
#endif
