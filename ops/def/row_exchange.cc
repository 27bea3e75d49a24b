#include "ops/def/row_exchange.h"

namespace dtorch {
namespace {

void need(bool ok, const char* what) {
  if (!ok) throw DecodeError(std::string("an exchange of rows ") + what);
}

}  // namespace

int64_t exchange_axis(const OperatorSpec& spec) {
  need(spec.inputs.size() == 2 && spec.outputs.size() == 2, "without two inputs and two outputs");
  const TensorMeta &from = *spec.inputs[0], &to = *spec.outputs[0], &sent = *spec.inputs[1];
  const DeviceMesh& mesh = from.layout.mesh();
  need(from.global_shape == to.global_shape && from.dtype == to.dtype && mesh == to.layout.mesh(),
       "whose sides differ in more than placements");
  need(from.global_shape.ndim() >= 2, "whose rows have no dim of parts");
  std::optional<int64_t> axis;
  for (int64_t a = 0; a < mesh.num_axes(); ++a) {
    if (from.layout.placement(a) == to.layout.placement(a)) continue;
    need(!axis, "along more than one axis");
    axis = a;
  }
  need(axis.has_value(), "along no axis");
  const Placement &before = from.layout.placement(*axis), &after = to.layout.placement(*axis);
  need(before.is_shard() && after.is_shard() && before.is_shard(0) != after.is_shard(0),
       "that doesn't move between split rows and split parts");
  need(from.global_shape[0] == mesh.shape()[*axis], "with another number of parts than positions");
  need(&sent == spec.outputs[1] && sent.dtype == kInt64 && sent.layout.mesh() == mesh &&
           sent.global_shape == Shape({mesh.num_devices(), from.global_shape[0]}),
       "with counts that don't fit");
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    const Box box = sent.layout.box_at(sent.global_shape, index);
    need(box.size == Shape({1, from.global_shape[0]}), "with counts that aren't split over all devices");
  }
  return *axis;
}

}  // namespace dtorch
