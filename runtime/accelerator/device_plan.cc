#include "runtime/accelerator/device_plan.h"

#include <algorithm>
#include <optional>
#include <set>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

using Kind = DevicePlan::Kind;
using Step = DevicePlan::Step;

// Parts that are padded may cost this much more than what they hold.
constexpr int64_t kMostPadding = 2;

Box relative_to(const Box& box, const Box& base) {
  Box result = box;
  for (int64_t dim = 0; dim < box.ndim(); ++dim) result.offset[dim] -= base.offset[dim];
  return result;
}

int32_t rank_in(const std::vector<int64_t>& group, int64_t device) {
  const auto at = std::ranges::find(group, device);
  DTORCH_CHECK(at != group.end(), "device " + std::to_string(device) + " has no part in this exchange");
  return static_cast<int32_t>(at - group.begin());
}

bool is_member(const TensorMeta& meta, int64_t device) { return meta.layout.mesh().index_of(device) >= 0; }

Box part_of(const TensorMeta& meta, int64_t device) {
  if (is_member(meta, device)) return meta.layout.box_of(meta.global_shape, device);
  const Shape nothing(meta.global_shape.ndim(), 0);
  return {nothing, nothing};
}

// What happens on one axis that isn't the same in both layouts.
std::optional<Kind> kind_of(const Placement& from, const Placement& to) {
  if (from.is_partial() && to.is_replicate()) return Kind::kAllReduce;
  if (from.is_partial() && to.is_shard()) return Kind::kReduceScatter;
  if (from.is_shard() && to.is_replicate()) return Kind::kAllGather;
  return std::nullopt;
}

// Devices that are where `device` is on all axes but those that change.
std::vector<int64_t> group_of(const DeviceMesh& mesh, int64_t device, const std::set<int64_t>& changed) {
  const Shape own = mesh.coordinate_of_index(mesh.index_of(device));
  std::vector<int64_t> group;
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    const Shape other = mesh.coordinate_of_index(index);
    bool is_in = true;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) is_in &= changed.contains(axis) || other[axis] == own[axis];
    if (is_in) group.push_back(mesh.devices()[static_cast<size_t>(index)]);
  }
  return group;
}

// Sets the parts when the group's boxes in `split` are disjoint and make up the box that all of them have in `whole`.
bool divides(const TensorMeta& whole_meta, const TensorMeta& split, Step& step) {
  const Box all = part_of(whole_meta, step.group.front());
  int64_t elements = 0;
  for (int64_t device : step.group) {
    const Box part = part_of(split, device);
    if (!(part_of(whole_meta, device) == all) || (!part.empty() && !all.contains(part))) return false;
    elements += part.num_elements();
    step.count = std::max(step.count, part.num_elements());
    step.parts.push_back(relative_to(part, all));
  }
  // They are parts of one layout along axes that split: when their sizes add up they don't overlap.
  return elements == all.num_elements() &&
         step.count * static_cast<int64_t>(step.group.size()) <= kMostPadding * std::max<int64_t>(elements, 1);
}

void set_parts(const TensorMeta& source, const TensorMeta& destination, int64_t device, Step& step) {
  step.rank = rank_in(step.group, device);
  step.dtype = destination.dtype;
  step.is_source = is_member(source, device);
  step.is_destination = is_member(destination, device);
  step.from_shape = part_of(source, device).size;
  step.to_shape = part_of(destination, device).size;
}

// Fills in what one group does; false when it can't as this kind.
bool set_group(const TensorMeta& source, const TensorMeta& destination, int64_t device, Step& step) {
  set_parts(source, destination, device, step);
  if (step.kind == Kind::kAllGather) return divides(destination, source, step);
  if (step.kind == Kind::kReduceScatter) return divides(source, destination, step);
  step.count = part_of(source, device).num_elements();
  return part_of(source, device) == part_of(destination, device);
}

// The whole redistribution as one collective a group, where it is one in all groups: what else there is all devices do
// together.
std::optional<Step> as_collective(const TensorMeta& source, const TensorMeta& destination, int64_t device,
                                  const CollectiveRules& rules) {
  const Layout& from = source.layout;
  const Layout& to = destination.layout;
  if (!(from.mesh() == to.mesh())) return std::nullopt;
  std::set<int64_t> changed;
  Step step;
  for (int64_t axis = 0; axis < from.mesh().num_axes(); ++axis) {
    const Placement &was = from.placement(axis), &becomes = to.placement(axis);
    if (was == becomes) continue;
    const std::optional<Kind> kind = kind_of(was, becomes);
    if (!kind || (!changed.empty() && (*kind != step.kind || was.reduce != step.reduce))) return std::nullopt;
    step.kind = *kind;
    step.reduce = was.reduce;
    changed.insert(axis);
  }
  if (changed.empty()) return std::nullopt;
  const bool folds = step.kind != Kind::kAllGather;
  if (folds && (rules.ordered_folds || !rules.can_reduce || !rules.can_reduce(source.dtype, step.reduce)))
    return std::nullopt;
  Step own;
  for (int64_t first : from.mesh().devices()) {
    Step of_group = step;
    of_group.group = group_of(from.mesh(), first, changed);
    if (of_group.group.front() != first) continue;
    if (!set_group(source, destination, first, of_group)) return std::nullopt;
    if (std::ranges::find(of_group.group, device) != of_group.group.end()) own = std::move(of_group);
  }
  set_parts(source, destination, device, own);
  return own;
}

// A stage in which all get all that one device has.
bool is_broadcast(const Stage& stage, const std::vector<int64_t>& group) {
  if (stage.from->layout.mesh().num_devices() != 1 || stage.divisor != 1) return false;
  const Box all = part_of(*stage.from, stage.from->layout.mesh().devices()[0]);
  return stage.to->layout.is_replicated() && all == whole(stage.to->global_shape) && group.size() > 2;
}

Step as_exchange(const Stage& stage, int64_t device, const DeviceBinding& binding) {
  Step step;
  step.group = devices_of(stage.from->layout.mesh(), stage.to->layout.mesh());
  set_parts(*stage.from, *stage.to, device, step);
  step.reduce = stage.reduce;
  step.divisor = stage.divisor;
  if (is_broadcast(stage, step.group)) {
    step.kind = Kind::kBroadcast;
    step.root = rank_in(step.group, stage.from->layout.mesh().devices()[0]);
    step.count = stage.to->global_shape.num_elements();
    return step;
  }
  const Box own = part_of(*stage.from, device);
  for (int64_t receiver : stage.to->layout.mesh().devices()) {
    if (receiver != device && !step.is_source) continue;
    const Box box_of_receiver = part_of(*stage.to, receiver);
    for (const PlanPiece& piece : pieces_for(stage, receiver, binding)) {
      if (receiver != device) {
        for (int64_t source : piece.sources) {
          if (source == device) step.sends.push_back({rank_in(step.group, receiver), relative_to(piece.box, own)});
        }
        continue;
      }
      DevicePlan::Piece& taken = step.pieces.emplace_back();
      taken.box = relative_to(piece.box, box_of_receiver);
      for (int64_t source : piece.sources)
        taken.sources.push_back({rank_in(step.group, source), relative_to(piece.box, part_of(*stage.from, source))});
    }
  }
  return step;
}

}  // namespace

std::vector<int64_t> devices_of(const DeviceMesh& from, const DeviceMesh& to) {
  std::vector<int64_t> devices = from.devices();
  for (int64_t device : to.devices()) {
    if (from.index_of(device) < 0) devices.push_back(device);
  }
  return devices;
}

bool have_own_accelerators(const std::vector<int64_t>& devices, const DeviceBinding& binding,
                           const std::vector<int32_t>& accelerators) {
  std::set<std::pair<int32_t, int32_t>> taken;
  for (int64_t device : devices) {
    const int32_t node = binding.node_of(device);
    const int32_t num = static_cast<size_t>(node) < accelerators.size() ? accelerators[static_cast<size_t>(node)] : 0;
    if (num == 0 || !taken.insert({node, binding.slot_of(device) % num}).second) return false;
  }
  return true;
}

DevicePlan plan_for_device(const RedistributePlan& plan, const TensorMeta& source, const TensorMeta& destination,
                           int64_t device, const DeviceBinding& binding, const CollectiveRules& rules) {
  DevicePlan result;
  if (std::optional<Step> step = as_collective(source, destination, device, rules)) {
    result.steps.push_back(std::move(*step));
    return result;
  }
  for (const Stage& stage : plan.stages) {
    if (is_member(*stage.from, device) || is_member(*stage.to, device))
      result.steps.push_back(as_exchange(stage, device, binding));
  }
  return result;
}

}  // namespace dtorch
