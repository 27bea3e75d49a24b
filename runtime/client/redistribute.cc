// Tensor's redistribute and its relatives.
#include "runtime/client/redistribute_call.h"

#include "mesh/redistribute_plan.h"
#include "ops/def/cast_attrs.h"
#include "runtime/client/named_operator.h"
#include "runtime/client/record.h"

namespace dtorch {
namespace {

Tensor cast_call(const Tensor& tensor, DType dtype, const Where& where) {
  static constinit NamedOperator cast_operator("to");
  return record(cast_operator.get(), CastAttrs{dtype}, {&tensor}, where);
}

// A pending value that `target` doesn't keep as it is.
bool reduces(const Layout& from, const Layout& target) {
  for (int64_t axis = 0; axis < from.mesh().num_axes(); ++axis) {
    const bool kept = from.mesh() == target.mesh() && from.placement(axis) == target.placement(axis);
    if (from.placement(axis).is_partial() && !kept) return true;
  }
  return false;
}

// Whether a redistribute with another dtype casts before it moves.
bool casts_first(const TensorMeta& from, const Layout& target, DType dtype) {
  const bool linear = is_floating(from.dtype) && is_floating(dtype);
  // Parts of a sum can't be cast to or from integers: the operator `to` would refuse it.
  if (!linear && from.layout.has_partial()) return false;
  if (!linear && target.has_partial()) return true;
  if (reduces(from.layout, target)) return size_of(dtype) > size_of(from.dtype);
  return size_of(dtype) < size_of(from.dtype) &&
         redistribute_bytes(from.global_shape, from.dtype, from.layout, target) > 0;
}

}  // namespace

Tensor redistribute_call(const Tensor& tensor, const Layout& layout, const Where& where) {
  static constinit NamedOperator redistribute_operator("redistribute");
  if (tensor.layout() == layout) return tensor;
  Tensor result;
  const Tensor* input = &tensor;
  record_call(
      {.op = redistribute_operator.get(), .attributes = {}, .inputs = {&input, 1}, .output_layouts = {&layout, 1}},
      {&result, 1}, where);
  return result;
}

Tensor Tensor::redistribute(const Layout& layout, Where where) const {
  // Built anew, so that a layout made for another tensor is checked against this one's dims.
  return redistribute_call(*this, Layout(layout.mesh(), layout.placements(), ndim(), layout.shard_order(), where),
                           where);
}

Tensor Tensor::redistribute(const Placements& placements, Where where) const {
  return redistribute(placements, {}, where);
}

Tensor Tensor::redistribute(const Placements& placements, const RedistributeOptions& options, Where where) const {
  return redistribute(mesh(), placements, options, where);
}

Tensor Tensor::redistribute(const DeviceMesh& to, const Placements& placements, const RedistributeOptions& options,
                            Where where) const {
  if (!to) throw MeshError("[redistribute] the mesh is empty (default-constructed)" + called_at(where));
  const Layout target = !options.order.empty() ? Layout(to, placements, ndim(), options.order, where)
                        : to == mesh()         ? layout().with_placements(placements, ndim(), where)
                                               : Layout(to, placements, ndim(), where);
  if (!options.dtype.given || options.dtype == dtype()) return redistribute_call(*this, target, where);
  if (casts_first(meta(), target, options.dtype))
    return redistribute_call(cast_call(*this, options.dtype, where), target, where);
  return cast_call(redistribute_call(*this, target, where), options.dtype, where);
}

Tensor Tensor::redistribute_like(const Tensor& other, Where where) const { return redistribute(other.layout(), where); }

Tensor Tensor::redistribute_by_dict(const std::map<std::string, Placement>& by_name, ByDictMode mode,
                                    Where where) const {
  Placements target = placements();
  if (mode == ByDictMode::kReplicate) target = Placements(target.size(), Replicate());
  std::vector<bool> named(static_cast<size_t>(mesh().num_axes()), false);
  for (const auto& [name, placement] : by_name) {
    const int64_t axis = mesh().axis(name, where);
    target[axis] = placement;
    named[static_cast<size_t>(axis)] = true;
  }
  if (mode == ByDictMode::kRaise) {
    std::string missing;
    for (int64_t axis = 0; axis < mesh().num_axes(); ++axis) {
      if (!named[static_cast<size_t>(axis)]) missing += (missing.empty() ? "'" : "', '") + mesh().axis_label(axis);
    }
    if (!missing.empty()) {
      throw KeyError("[redistribute_by_dict] no placement for " + missing + "' of " + mesh().sizes_str() +
                     "; name every axis, or pass ByDictMode::kKeep or ByDictMode::kReplicate for the others" +
                     called_at(where));
    }
  }
  return redistribute(target, where);
}

Tensor Tensor::reduced(Where where) const { return redistribute_call(*this, layout().without_partial(), where); }

Tensor Tensor::full_tensor(Where where) const { return redistribute_call(*this, Layout::replicated(mesh()), where); }

}  // namespace dtorch
