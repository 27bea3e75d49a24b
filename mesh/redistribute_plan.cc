// Choice of the stages of a redistribution and its cost. Everything here is a pure function of the layouts, in
// integers, so that every Sub-Controller comes to the same plan.
#include "mesh/redistribute_plan.h"

#include <algorithm>
#include <optional>

#include "mesh/closed_form.h"

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

// `to` becomes Partial(sum) on this axis: only position 0 holds the value, the others a 0.
bool becomes_sum(const Step& step, int64_t axis) {
  if (!step.to.placement(axis).is_partial(kSum)) return false;
  const bool kept =
      step.from.mesh() == step.to.mesh() && step.from.placement(axis).is_partial(kSum) && !is_folded(step, axis);
  return !kept;
}

// The device's part of `to` is only a 0.
bool holds_identity(const Step& step, int64_t to_index) {
  const Layout& to = step.to;
  if (!to.has_partial()) return false;
  const Shape coordinate = to.mesh().coordinate_of_index(to_index);
  for (int64_t axis = 0; axis < to.mesh().num_axes(); ++axis) {
    if (coordinate[axis] != 0 && becomes_sum(step, axis)) return true;
  }
  return false;
}

// Elements that devices receive from other devices.
int64_t elements_moved(const Step& step, const Shape& shape) {
  const DeviceMesh& mesh = step.to.mesh();
  const int64_t parts = num_parts(step.from, step.folded_axes);
  if (step.from.mesh() == mesh) {
    FirstOnly first_only;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) first_only.push_back(becomes_sum(step, axis));
    if (const auto common = elements_in_common(step.from, step.to, shape, first_only))
      return parts * elements_held(step.to, shape, first_only) - *common;
  }
  const bool same = step.from.mesh().devices() == mesh.devices();
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
  if (step.from.mesh() == mesh && splits_further(step.from, step.to, shape.ndim())) return true;
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

// Adds the layout that `from` gets with these placements, if it is a new one.
void add_target(std::vector<Layout>& targets, const Layout& from, const Layout& to, const Placements& placements,
                int64_t ndim) {
  const Layout target = folded_layout(from, to, placements, ndim);
  if (std::find(targets.begin(), targets.end(), target) == targets.end()) targets.push_back(target);
}

// Layouts to which the folded axes may go, best guess first: sharded as the destination has them, all on one dim, or
// replicated.
std::vector<Layout> fold_targets(const Layout& from, const Layout& to, const AxisList& folded, int64_t ndim) {
  std::vector<Layout> targets;
  for (const bool as_destination : {true, false}) {
    for (int64_t dim = 0; dim < ndim; ++dim) {
      Placements placements = from.placements();
      for (int8_t axis : folded) {
        const bool take = as_destination && from.mesh() == to.mesh() && to.placement(axis).is_shard();
        placements[axis] = take ? to.placement(axis) : Shard(dim);
      }
      add_target(targets, from, to, placements, ndim);
    }
  }
  Placements placements = from.placements();
  for (int8_t axis : folded) placements[axis] = Replicate();
  add_target(targets, from, to, placements, ndim);
  return targets;
}

// Further targets: every axis by itself. Replicas of the parts may share the work of folding (their axis is sharded
// until the copy after it), and a shard may go where the destination wants it in the same stage.
void add_free_targets(std::vector<Layout>& targets, const Layout& from, const Layout& to, const AxisList& folded,
                      int64_t ndim) {
  constexpr int64_t kMaxTargets = 256;
  const bool same_mesh = from.mesh() == to.mesh();
  std::vector<std::vector<Placement>> options;
  int64_t combinations = 1;
  for (int64_t axis = 0; axis < from.mesh().num_axes(); ++axis) {
    std::vector<Placement>& own = options.emplace_back();
    const Placement& p = from.placement(axis);
    const bool is_fold = std::find(folded.begin(), folded.end(), static_cast<int8_t>(axis)) != folded.end();
    own.push_back(is_fold ? Replicate() : p);
    if (from.mesh().shape()[axis] == 1 || (p.is_partial() && !is_fold)) continue;
    if (p.is_shard()) {
      if (same_mesh && !to.placement(axis).is_partial() && to.placement(axis) != p) own.push_back(to.placement(axis));
    } else {
      for (int64_t dim = 0; dim < ndim; ++dim) own.push_back(Shard(dim));
    }
    combinations *= static_cast<int64_t>(own.size());
    if (combinations > kMaxTargets) return;
  }
  for (int64_t number = 0; number < combinations; ++number) {
    Placements placements;
    int64_t rest = number;
    for (const std::vector<Placement>& own : options) {
      placements.push_back(own[static_cast<size_t>(rest % static_cast<int64_t>(own.size()))]);
      rest /= static_cast<int64_t>(own.size());
    }
    add_target(targets, from, to, placements, ndim);
  }
}

// What the fullest device holds during a step: its parts before and after, and what a fold brings.
int64_t peak_elements(const Step& step, const Shape& shape) {
  const DeviceMesh& mesh = step.to.mesh();
  const int64_t parts = num_parts(step.from, step.folded_axes);
  int64_t peak = 0;
  // Parts get no larger along an axis, so that on one mesh the first device has the largest of both.
  const int64_t num_looked_at = step.from.mesh() == mesh ? 1 : mesh.num_devices();
  for (int64_t index = 0; index < num_looked_at; ++index) {
    const int64_t after = step.to.box_at(shape, index).num_elements();
    const int64_t from_index = step.from.mesh().index_of(mesh.devices()[static_cast<size_t>(index)]);
    const int64_t before = from_index < 0 ? 0 : step.from.box_at(shape, from_index).num_elements();
    peak = std::max(peak, before + after + (parts - 1) * after);
  }
  return peak;
}

struct Steps {
  std::vector<Step> list;
  int64_t elements = 0;
};

// Folds one kind of reduction after the other, each to the target that makes everything cheapest; then copies. Of plans
// that move equally much, a small tensor takes the one with fewer stages, a large one that which needs less memory.
class StepSearch {
 public:
  StepSearch(const Shape& shape, const Layout& destination)
      : shape_(shape), destination_(destination), small_(shape.num_elements() <= kSmallElements) {}

  // depth: folds before this one.
  Steps best_from(const Layout& at, int depth = 0) const {
    if (at == destination_) return {};
    bool last_fold = true;
    const Step fold = next_fold(at, &last_fold);
    if (fold.folded_axes.empty()) return {{fold}, elements_moved(fold, shape_)};
    // Later folds are tried for every target of the first one only.
    const bool looks_ahead = last_fold || depth == 0;
    std::optional<Steps> best;
    for (const Layout& target : targets_of(fold, last_fold)) {
      Step step = fold;
      step.to = target;
      Steps steps{{step}, elements_moved(step, shape_)};
      if (best && steps.elements > best->elements) continue;
      if (looks_ahead) append(steps, best_from(target, depth + 1));
      if (!best || better(steps, *best)) best = std::move(steps);
    }
    if (!looks_ahead) append(*best, best_from(best->list.back().to, depth + 1));
    return *best;
  }

 private:
  // The kind of reduction that comes first, straight to the destination.
  Step next_fold(const Layout& at, bool* is_last) const {
    Step step{at, destination_, {}, kSum};
    for (int64_t axis = 0; axis < at.mesh().num_axes(); ++axis) {
      const Placement& p = at.placement(axis);
      if (!p.is_partial() || keeps_partial(at, destination_, axis)) continue;
      if (step.folded_axes.empty()) step.kind = p.reduce;
      if (p.reduce == step.kind)
        step.folded_axes.push_back(static_cast<int8_t>(axis));
      else
        *is_last = false;
    }
    return step;
  }

  std::vector<Layout> targets_of(const Step& fold, bool last_fold) const {
    std::vector<Layout> targets;
    if (last_fold && small_) targets.push_back(destination_);
    for (const Layout& target : fold_targets(fold.from, destination_, fold.folded_axes, shape_.ndim())) {
      if (std::find(targets.begin(), targets.end(), target) == targets.end()) targets.push_back(target);
    }
    if (!last_fold) return targets;
    if (!small_ && std::find(targets.begin(), targets.end(), destination_) == targets.end()) {
      targets.push_back(destination_);
    }
    add_free_targets(targets, fold.from, destination_, fold.folded_axes, shape_.ndim());
    return targets;
  }

  static void append(Steps& steps, Steps rest) {
    steps.elements += rest.elements;
    steps.list.insert(steps.list.end(), rest.list.begin(), rest.list.end());
  }

  bool better(const Steps& a, const Steps& b) const {
    if (a.elements != b.elements) return a.elements < b.elements;
    if (small_) return a.list.size() < b.list.size();
    return peak(a) < peak(b);
  }

  int64_t peak(const Steps& steps) const {
    int64_t most = 0;
    for (const Step& step : steps.list) most = std::max(most, peak_elements(step, shape_));
    return most;
  }

  const Shape& shape_;
  const Layout& destination_;
  const bool small_;
};

Steps choose_steps(const Shape& shape, const Layout& source, const Layout& destination) {
  return StepSearch(shape, destination).best_from(source);
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

}  // namespace dtorch
