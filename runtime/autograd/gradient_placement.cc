#include "runtime/autograd/gradient_placement.h"

#include "ops/math/functions.h"
#include "runtime/client/redistribute_call.h"

namespace dtorch {
namespace {

Layout with(const TensorMeta& meta, const Placements& placements) {
  return Layout(meta.layout.mesh(), placements, meta.global_shape.ndim(), meta.layout.shard_order());
}

}  // namespace

Layout gradient_layout(const TensorMeta& meta) { return meta.layout.without_partial(); }

Tensor normalize_gradient(const Tensor& gradient, const TensorMeta& meta, const Where& where) {
  Placements placements = meta.layout.placements();
  bool pending = false;
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_shard()) continue;
    const bool keeps = placements[axis].is_replicate() && gradient.mesh() == meta.layout.mesh() &&
                       gradient.layout().placement(axis).is_partial(kSum);
    placements[axis] = keeps ? Partial(kSum) : Replicate();
    pending |= keeps;
  }
  Tensor placed = redistribute_call(gradient, with(meta, placements), where);
  return pending || placed.dtype() == meta.dtype ? placed : to(placed, meta.dtype, where);
}

Tensor add_gradients(const Tensor& a, const Tensor& b, const Where& where) {
  Placements placements = a.placements();
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    if (b.layout().placement(axis).is_partial()) placements[axis] = Partial(kSum);
  }
  const Layout joint = with(a.meta(), placements);
  DType dtype = promote(a.dtype(), b.dtype());
  if (joint.has_partial()) dtype = accumulation_dtype(dtype);
  return add(to(redistribute_call(a, joint, where), dtype, where), to(redistribute_call(b, joint, where), dtype, where),
             where);
}

Tensor reduce_gradient(const Tensor& gradient, const TensorMeta& meta, const Where& where) {
  return to(redistribute_call(gradient, gradient_layout(meta), where), meta.dtype, where);
}

}  // namespace dtorch
