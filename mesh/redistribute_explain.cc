// What a plan does, in words, and what it needs.
#include <algorithm>

#include "mesh/redistribute_plan.h"

namespace dtorch {
namespace {

const char* verb_of(const RedistributePlan& plan, const Stage& stage) {
  if (!stage.folded_axes.empty()) return "fold";
  return plan.kind == PlanKind::kLocal ? "local" : "copy";
}

std::string axes_str(const Stage& stage) {
  std::string text;
  for (int8_t axis : stage.folded_axes) text += (text.empty() ? "" : ", ") + stage.from->layout.mesh().axis_label(axis);
  return text;
}

// Bytes that `device` holds and receives during a stage: its part of both layouts, and the parts that a fold brings.
int64_t stage_bytes(const Stage& stage, int64_t device, int64_t received) {
  int64_t elements = 0;
  for (const TensorMeta* meta : {stage.from, stage.to}) {
    const int64_t index = meta->layout.mesh().index_of(device);
    if (index >= 0) elements += meta->layout.box_at(meta->global_shape, index).num_elements();
  }
  return elements * size_of(stage.to->dtype) + (stage.folded_axes.empty() ? 0 : received);
}

}  // namespace

std::string RedistributePlan::explain(const DeviceBinding& binding) const {
  if (kind == PlanKind::kNothing) return "nothing to do: the layouts are equal\n";
  const TensorMeta* source = stages.front().from;
  const TensorMeta* destination = stages.back().to;
  std::string text = "redistribute " + source->str() + " to " + destination->layout.str();
  if (source->layout.mesh() != destination->layout.mesh()) text += " on " + destination->layout.mesh().str();
  text += kind == PlanKind::kLocal ? ": local, no data moves\n" : "\n";
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    text += "  step " + std::to_string(i + 1) + ": " + verb_of(*this, stage);
    if (!stage.folded_axes.empty()) {
      text += std::string(" ") + (stage.divisor > 1 ? "avg" : name_of(stage.reduce)) + " over " + axes_str(stage);
    }
    text += " " + stage.from->layout.str() + " -> " + stage.to->layout.str();
    int64_t total = 0;
    int64_t most = 0;
    for (int64_t device : stage.to->layout.mesh().devices()) {
      const int64_t received = bytes_received(stage, device, binding);
      total += received;
      most = std::max(most, received);
    }
    text += "; receives at most " + std::to_string(most) + " bytes a device, " + std::to_string(total) + " in all\n";
  }
  return text + "  peak memory: " + std::to_string(peak_bytes(binding)) + " bytes a device\n";
}

int64_t RedistributePlan::peak_bytes(const DeviceBinding& binding) const {
  int64_t peak = 0;
  for (const Stage& stage : stages) {
    for (int64_t device : stage.to->layout.mesh().devices()) {
      peak = std::max(peak, stage_bytes(stage, device, bytes_received(stage, device, binding)));
    }
  }
  return peak;
}

std::string explain_redistribute(const Layout& from, const Layout& to, const Shape& global_shape, DType dtype) {
  int64_t num_devices = 0;
  for (const Layout* layout : {&from, &to}) {
    DTORCH_CHECK(*layout, "a layout is empty (default-constructed)");
    for (int64_t device : layout->mesh().devices()) num_devices = std::max(num_devices, device + 1);
  }
  const RedistributePlan plan =
      make_redistribute_plan(intern_meta(global_shape, dtype, from), intern_meta(global_shape, dtype, to));
  return plan.explain(block_binding(num_devices, 1));
}

}  // namespace dtorch
