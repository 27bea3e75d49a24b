// Choice of the stages of a redistribution, its cost and its description. Everything here is a pure function of the
// layouts, in integers, so that every Sub-Controller comes to the same plan.
#include "mesh/redistribute_plan.h"

#include <algorithm>
#include <optional>

namespace dtorch {
namespace {

constexpr int64_t kSmallElements = 1 << 14;

// A stage before its metas are interned.
struct Step {
  Layout from;
  Layout to;
  AxisList folded_axes;
  ReduceOp kind = kSum;  // as in the placement: may be kAvg
};

bool is_folded(const Step& step, int64_t axis) {
  const int8_t a = static_cast<int8_t>(axis);
  return std::find(step.folded_axes.begin(), step.folded_axes.end(), a) != step.folded_axes.end();
}

int64_t num_parts(const Layout& layout, const AxisList& axes) {
  int64_t parts = 1;
  for (int8_t axis : axes) parts *= layout.mesh().shape()[axis];
  return parts;
}

// The device's part of `to` is only a 0, because it isn't at position 0 of an axis that becomes Partial(sum).
bool holds_identity(const Step& step, int64_t to_index) {
  const Layout& to = step.to;
  if (!to.has_partial()) return false;
  const Shape coordinate = to.mesh().coordinate_of_index(to_index);
  for (int64_t axis = 0; axis < to.mesh().num_axes(); ++axis) {
    if (!to.placement(axis).is_partial(kSum) || coordinate[axis] == 0) continue;
    const bool kept =
        step.from.mesh() == to.mesh() && step.from.placement(axis).is_partial(kSum) && !is_folded(step, axis);
    if (!kept) return true;
  }
  return false;
}

// Elements that devices receive from other devices.
int64_t elements_moved(const Step& step, const Shape& shape) {
  const DeviceMesh& mesh = step.to.mesh();
  const bool same = step.from.mesh().devices() == mesh.devices();
  const int64_t parts = num_parts(step.from, step.folded_axes);
  int64_t moved = 0;
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    if (holds_identity(step, index)) continue;
    const Box box = step.to.box_at(shape, index);
    if (box.empty()) continue;
    moved += parts * box.num_elements();
    const int64_t from_index = same ? index : step.from.mesh().index_of(mesh.devices()[static_cast<size_t>(index)]);
    if (from_index >= 0) moved -= intersect(step.from.box_at(shape, from_index), box).num_elements();
  }
  return moved;
}

bool is_local(const Step& step, const Shape& shape) {
  const DeviceMesh& mesh = step.to.mesh();
  if (!step.folded_axes.empty()) return false;
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    const int64_t from_index = step.from.mesh().index_of(mesh.devices()[static_cast<size_t>(index)]);
    if (from_index < 0) return false;
    if (holds_identity(step, index)) continue;
    if (!step.from.box_at(shape, from_index).contains(step.to.box_at(shape, index))) return false;
  }
  return true;
}

// Whether the source's Partial on `axis` stays as it is.
bool keeps_partial(const Layout& from, const Layout& to, int64_t axis) {
  return from.mesh() == to.mesh() && from.placement(axis) == to.placement(axis);
}

// `from` with each folded axis as given in `placements`, where shards that the destination has too follow its order.
Layout folded_layout(const Layout& from, const Layout& to, const Placements& placements, int64_t ndim) {
  AxisList order;
  for (int8_t axis : from.shard_order()) {
    if (placements[axis] == from.placement(axis)) order.push_back(axis);
  }
  if (from.mesh() == to.mesh()) {
    for (int8_t axis : to.shard_order()) {
      if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
    }
  }
  return Layout(from.mesh(), placements, ndim, order);
}

// Layouts to which the folded axes may go, best guess first: sharded as the destination has them, all on one dim, or
// replicated.
std::vector<Layout> fold_targets(const Layout& from, const Layout& to, const AxisList& folded, int64_t ndim) {
  std::vector<Layout> targets;
  const auto add = [&](const Placements& placements) {
    const Layout target = folded_layout(from, to, placements, ndim);
    if (std::find(targets.begin(), targets.end(), target) == targets.end()) targets.push_back(target);
  };
  for (const bool as_destination : {true, false}) {
    for (int64_t dim = 0; dim < ndim; ++dim) {
      Placements placements = from.placements();
      for (int8_t axis : folded) {
        const bool take = as_destination && from.mesh() == to.mesh() && to.placement(axis).is_shard();
        placements[axis] = take ? to.placement(axis) : Shard(dim);
      }
      add(placements);
    }
  }
  Placements placements = from.placements();
  for (int8_t axis : folded) placements[axis] = Replicate();
  add(placements);
  return targets;
}

struct Steps {
  std::vector<Step> list;
  int64_t elements = 0;
};

// Folds one kind of reduction after the other, each to the target that makes fold and remaining copy cheapest; then
// copies.
Steps choose_steps(const Shape& shape, const Layout& source, const Layout& destination) {
  Steps steps;
  Layout at = source;
  while (at != destination) {
    Step step{at, destination, {}, kSum};
    bool last_fold = true;
    for (int64_t axis = 0; axis < at.mesh().num_axes(); ++axis) {
      const Placement& p = at.placement(axis);
      if (!p.is_partial() || keeps_partial(at, destination, axis)) continue;
      if (step.folded_axes.empty()) step.kind = p.reduce;
      if (p.reduce == step.kind)
        step.folded_axes.push_back(static_cast<int8_t>(axis));
      else
        last_fold = false;
    }
    if (step.folded_axes.empty()) {
      steps.elements += elements_moved(step, shape);
      steps.list.push_back(step);
      break;
    }
    std::optional<int64_t> best_cost;
    int64_t best_moved = 0;
    Layout best;
    const auto consider = [&](const Layout& target) {
      step.to = target;
      const int64_t moved = elements_moved(step, shape);
      if (best_cost && moved >= *best_cost) return;
      const int64_t rest =
          last_fold && target != destination ? elements_moved({target, destination, {}, kSum}, shape) : 0;
      if (best_cost && moved + rest >= *best_cost) return;
      best_cost = moved + rest;
      best_moved = moved;
      best = target;
    };
    // Of plans that move equally much, a small tensor takes the one with fewer stages, a large one that which holds
    // less.
    const bool small = shape.num_elements() <= kSmallElements;
    if (last_fold && small) consider(destination);
    for (const Layout& target : fold_targets(at, destination, step.folded_axes, shape.ndim())) consider(target);
    if (last_fold) consider(destination);
    step.to = best;
    steps.elements += best_moved;
    steps.list.push_back(step);
    at = best;
  }
  return steps;
}

}  // namespace

RedistributePlan make_redistribute_plan(const TensorMeta* source, const TensorMeta* destination) {
  DTORCH_CHECK(source->global_shape == destination->global_shape && source->dtype == destination->dtype,
               source->str() + " to " + destination->str());
  RedistributePlan plan;
  if (source == destination || source->layout == destination->layout) return plan;
  const Shape& shape = source->global_shape;
  const Steps steps = choose_steps(shape, source->layout, destination->layout);
  for (const Step& step : steps.list) {
    Stage stage;
    stage.from = intern_meta(shape, source->dtype, step.from);
    stage.to = intern_meta(shape, source->dtype, step.to);
    stage.folded_axes = step.folded_axes;
    stage.reduce = step.kind == kAvg ? kSum : step.kind;
    stage.divisor = step.kind == kAvg ? num_parts(step.from, step.folded_axes) : 1;
    plan.stages.push_back(stage);
  }
  const bool local = steps.list.size() == 1 && is_local(steps.list.front(), shape);
  plan.kind = local ? PlanKind::kLocal : PlanKind::kTransfer;
  return plan;
}

int64_t redistribute_bytes(const Shape& global_shape, DType dtype, const Layout& from, const Layout& to) {
  return choose_steps(global_shape, from, to).elements * size_of(dtype);
}

int64_t RedistributePlan::bytes_moved(const DeviceBinding& binding) const {
  int64_t bytes = 0;
  for (const Stage& stage : stages) {
    for (int64_t device : stage.to->layout.mesh().devices()) bytes += bytes_received(stage, device, binding);
  }
  return bytes;
}

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
  int64_t peak = 0;
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
      peak = std::max(peak, stage_bytes(stage, device, received));
    }
    text += "; receives at most " + std::to_string(most) + " bytes a device, " + std::to_string(total) + " in all\n";
  }
  return text + "  peak memory: " + std::to_string(peak) + " bytes a device\n";
}

}  // namespace dtorch
