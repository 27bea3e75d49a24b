// Redistributions by collectives, played on arrays: every device gets what the plan's pieces say, no rank waits for one
// that doesn't come, and what is a collective is found to be one.
#include "runtime/accelerator/device_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

using Kind = DevicePlan::Kind;
using Step = DevicePlan::Step;
using Values = std::vector<double>;       // of a part, row-major
using Parts = std::map<int64_t, Values>;  // by device

// Calls visit(index within the box) in row-major order of the whole that the box is in.
template <class Visit>
void for_each_in(const Box& box, const Shape& of, Visit visit) {
  if (box.empty()) return;
  Shape at(box.ndim(), 0);
  while (true) {
    int64_t index = 0;
    for (int64_t dim = 0; dim < box.ndim(); ++dim) index = index * of[dim] + box.offset[dim] + at[dim];
    visit(static_cast<size_t>(index));
    int64_t dim = box.ndim() - 1;
    for (; dim >= 0; --dim) {
      if (++at[dim] < box.size[dim]) break;
      at[dim] = 0;
    }
    if (dim < 0) return;
  }
}

Values take(const Values& from, const Shape& shape, const Box& box) {
  Values taken;
  for_each_in(box, shape, [&](size_t i) { taken.push_back(from.at(i)); });
  return taken;
}

void put(const Values& values, const Box& box, Values& into, const Shape& shape) {
  size_t next = 0;
  for_each_in(box, shape, [&](size_t i) { into.at(i) = values.at(next++); });
}

Values folded(const std::vector<Values>& sources, ReduceOp reduce, double divisor) {
  Values result = sources.front();
  for (size_t s = 1; s < sources.size(); ++s) {
    for (size_t i = 0; i < result.size(); ++i) {
      const double value = sources[s].at(i);
      if (reduce == ReduceOp::kMax)
        result[i] = std::max(result[i], value);
      else if (reduce == ReduceOp::kMin)
        result[i] = std::min(result[i], value);
      else
        result[i] += value;
    }
  }
  for (double& value : result) value /= divisor;
  return result;
}

Box relative_to(Box box, const Box& base) {
  for (int64_t dim = 0; dim < box.ndim(); ++dim) box.offset[dim] -= base.offset[dim];
  return box;
}

// Parts that differ where the layout says that they do, and only there.
Parts make_parts(const TensorMeta& meta) {
  Parts parts;
  const DeviceMesh& mesh = meta.layout.mesh();
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    int64_t pending = 0;
    const Shape coordinate = mesh.coordinate_of_index(index);
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
      if (meta.layout.placement(axis).is_partial()) pending = pending * 7 + coordinate[axis] + 1;
    }
    Values& values = parts[mesh.devices()[static_cast<size_t>(index)]];
    for_each_in(meta.layout.box_at(meta.global_shape, index), meta.global_shape, [&](size_t i) {
      values.push_back(static_cast<double>((static_cast<int64_t>(i) * 31 + pending * 17) % 101 - 40));
    });
  }
  return parts;
}

// What the plan says, piece by piece.
Parts expected_parts(const RedistributePlan& plan, Parts parts, const DeviceBinding& binding) {
  for (const Stage& stage : plan.stages) {
    Parts next;
    for (int64_t device : stage.to->layout.mesh().devices()) {
      const Box own = stage.to->layout.box_of(stage.to->global_shape, device);
      Values& result = next[device];
      result.assign(static_cast<size_t>(own.num_elements()), 0);
      for (const PlanPiece& piece : pieces_for(stage, device, binding)) {
        if (piece.sources.empty()) continue;
        std::vector<Values> sources;
        for (int64_t source : piece.sources) {
          const Box box = stage.from->layout.box_of(stage.from->global_shape, source);
          sources.push_back(take(parts.at(source), box.size, relative_to(piece.box, box)));
        }
        put(folded(sources, stage.reduce, static_cast<double>(stage.divisor)), relative_to(piece.box, own), result,
            own.size);
      }
    }
    parts = std::move(next);
  }
  return parts;
}

// All ranks of one step at once.
class Play {
 public:
  Play(std::vector<const Step*> steps, const Parts& before) : steps_(std::move(steps)), before_(before) {}

  Parts run() {
    Parts after;
    for (const Step* step : steps_) {
      if (step->is_destination) after[device_of(*step)] = result_of(*step);
    }
    return after;
  }

 private:
  static int64_t device_of(const Step& step) { return step.group[static_cast<size_t>(step.rank)]; }
  const Values& value_of(size_t rank) const { return before_.at(steps_[0]->group[rank]); }
  static Values padded(Values values, int64_t count) {
    values.resize(static_cast<size_t>(count), -1e9);
    return values;
  }

  Values result_of(const Step& step) {
    for (const Step* other : steps_) {
      EXPECT_EQ(other->kind, step.kind);
      EXPECT_EQ(other->count, step.count);
    }
    Values result(static_cast<size_t>(step.to_shape.num_elements()), 0);
    std::vector<Values> sources;
    const auto num = static_cast<double>(step.group.size());
    const double divisor = step.reduce == ReduceOp::kAvg ? num : 1;
    switch (step.kind) {
      case Kind::kAllReduce:
        for (size_t rank = 0; rank < step.group.size(); ++rank) sources.push_back(value_of(rank));
        return folded(sources, step.reduce, divisor);
      case Kind::kBroadcast:
        return value_of(static_cast<size_t>(step.root));
      case Kind::kAllGather:
        for (size_t rank = 0; rank < step.group.size(); ++rank) {
          Values part = padded(value_of(rank), step.count);
          part.resize(static_cast<size_t>(step.parts[rank].num_elements()));
          put(part, step.parts[rank], result, step.to_shape);
        }
        return result;
      case Kind::kReduceScatter:
        for (size_t rank = 0; rank < step.group.size(); ++rank) {
          const Box& box = step.parts[static_cast<size_t>(step.rank)];
          sources.push_back(padded(take(value_of(rank), steps_[rank]->from_shape, box), step.count));
        }
        result = folded(sources, step.reduce, divisor);
        result.resize(static_cast<size_t>(step.to_shape.num_elements()));
        return result;
      case Kind::kExchange:
        break;
    }
    for (const DevicePlan::Piece& piece : step.pieces) {
      for (const DevicePlan::Piece::Source& source : piece.sources) sources.push_back(receive(step, source));
      if (!sources.empty())
        put(folded(sources, step.reduce, static_cast<double>(step.divisor)), piece.box, result, step.to_shape);
      sources.clear();
    }
    return result;
  }

  // The next message from that rank, or what is here.
  Values receive(const Step& step, const DevicePlan::Piece::Source& source) {
    const Step& sender = *steps_[static_cast<size_t>(source.rank)];
    const Values& value = value_of(static_cast<size_t>(source.rank));
    if (source.rank == step.rank) return take(value, sender.from_shape, source.box);
    size_t& next = next_send_[{source.rank, step.rank}];
    while (next < sender.sends.size() && sender.sends[next].to != step.rank) ++next;
    if (next == sender.sends.size()) throw InternalError("nothing more is sent");
    const Box& sent = sender.sends[next++].box;
    EXPECT_EQ(sent, source.box);
    return take(value, sender.from_shape, sent);
  }

  const std::vector<const Step*> steps_;  // by rank
  const Parts& before_;
  std::map<std::pair<int32_t, int32_t>, size_t> next_send_;
};

// Steps run where all ranks of a group have come to them.
Parts played(const std::map<int64_t, DevicePlan>& plans, Parts parts) {
  std::map<int64_t, size_t> at;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const auto& [device, plan] : plans) {
      if (at[device] == plan.steps.size()) continue;
      const std::vector<int64_t> group = plan.steps[at[device]].group;
      std::vector<const Step*> steps;
      for (int64_t other : group) {
        const DevicePlan& its = plans.at(other);
        if (at[other] < its.steps.size() && its.steps[at[other]].group == group) steps.push_back(&its.steps[at[other]]);
      }
      if (steps.size() < group.size()) continue;
      for (int64_t other : group) ++at[other];
      Parts after = Play(steps, parts).run();
      for (int64_t other : group) parts.erase(other);
      parts.merge(after);
      goes_on = true;
      break;
    }
  }
  for (const auto& [device, plan] : plans) EXPECT_EQ(at[device], plan.steps.size()) << "device " << device << " waits";
  return parts;
}

std::vector<Placements> all_placements(int64_t num_axes, int64_t ndim) {
  std::vector<Placement> kinds = {Replicate(), Partial(), Partial(kMax), Partial(kAvg)};
  for (int64_t dim = 0; dim < ndim; ++dim) kinds.push_back(Shard(dim));
  std::vector<Placements> all = {Placements()};
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    std::vector<Placements> longer;
    for (const Placements& begin : all) {
      for (const Placement& kind : kinds) {
        longer.push_back(begin);
        longer.back().push_back(kind);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::map<int64_t, DevicePlan> plans_of(const RedistributePlan& plan, const TensorMeta& from, const TensorMeta& to,
                                       const DeviceBinding& binding, const CollectiveRules& rules) {
  std::map<int64_t, DevicePlan> plans;
  for (int64_t device : devices_of(from.layout.mesh(), to.layout.mesh()))
    plans[device] = plan_for_device(plan, from, to, device, binding, rules);
  return plans;
}

CollectiveRules library_folds() {
  return {.ordered_folds = false, .can_reduce = [](DType, ReduceOp) { return true; }};
}

void check(const TensorMeta& from, const TensorMeta& to, const CollectiveRules& rules) {
  const DeviceBinding binding = block_binding(8, 2);
  const RedistributePlan plan = make_redistribute_plan(&from, &to);
  if (plan.kind != PlanKind::kTransfer) return;
  SCOPED_TRACE(from.str() + " -> " + to.str());
  const Parts parts = make_parts(from);
  const Parts expected = expected_parts(plan, parts, binding);
  EXPECT_EQ(played(plans_of(plan, from, to, binding, rules), parts), expected);
}

TEST(DevicePlan, EveryDeviceGetsWhatThePlanSays) {
  std::mt19937_64 random(7);
  const std::vector<std::pair<Shape, std::vector<int64_t>>> meshes = {
      {{2}, {0, 1}}, {{3}, {4, 1, 2}}, {{2, 2}, {0, 1, 2, 3}}, {{2, 3}, {5, 4, 3, 2, 1, 0}}};
  for (const auto& [shape, devices] : meshes) {
    const DeviceMesh mesh("cpu", shape, devices);
    const std::vector<Placements> layouts = all_placements(shape.size(), 2);
    for (const Shape& global_shape : {Shape{4, 6}, Shape{5, 3}, Shape{1, 4}, Shape{0, 2}}) {
      for (const Placements& from : layouts) {
        for (const Placements& to : layouts) {
          if (shape.size() > 1 && random() % 8 != 0) continue;
          const TensorMeta* source = intern_meta(global_shape, kFloat64, Layout(mesh, from, 2));
          const TensorMeta* destination = intern_meta(global_shape, kFloat64, Layout(mesh, to, 2));
          check(*source, *destination, library_folds());
          check(*source, *destination, {.ordered_folds = true, .can_reduce = library_folds().can_reduce});
        }
      }
    }
  }
}

TEST(DevicePlan, MeshesMayDiffer) {
  const DeviceMesh two("cpu", {2}, {0, 1}), three("cpu", {3}, {5, 1, 7}), one("cpu", {1}, {3});
  for (const DeviceMesh& a : {two, three, one}) {
    for (const DeviceMesh& b : {two, three, one}) {
      for (const Placements& from : all_placements(1, 2)) {
        for (const Placements& to : all_placements(1, 2)) {
          check(*intern_meta({5, 4}, kFloat64, Layout(a, from, 2)), *intern_meta({5, 4}, kFloat64, Layout(b, to, 2)),
                library_folds());
        }
      }
    }
  }
}

Kind kind_of(const DeviceMesh& a, const Placements& from, const DeviceMesh& b, const Placements& to,
             const Shape& global_shape, const CollectiveRules& rules) {
  const TensorMeta* source = intern_meta(global_shape, kFloat32, Layout(a, from, 2));
  const TensorMeta* destination = intern_meta(global_shape, kFloat32, Layout(b, to, 2));
  const RedistributePlan plan = make_redistribute_plan(source, destination);
  return plan_for_device(plan, *source, *destination, a.devices()[0], block_binding(8, 2), rules).steps.at(0).kind;
}

TEST(DevicePlan, CollectivesAreRecognised) {
  const DeviceMesh mesh("cpu", {4}, {0, 1, 2, 3}), one("cpu", {1}, {0});
  const auto kind = [&](const Placements& from, const Placements& to, const Shape& shape) {
    return kind_of(mesh, from, mesh, to, shape, library_folds());
  };
  EXPECT_EQ(kind({Partial()}, {Replicate()}, {8, 4}), Kind::kAllReduce);
  EXPECT_EQ(kind({Partial(kAvg)}, {Replicate()}, {7, 3}), Kind::kAllReduce);
  EXPECT_EQ(kind({Shard(1)}, {Replicate()}, {8, 4}), Kind::kAllGather);
  EXPECT_EQ(kind({Shard(0)}, {Replicate()}, {7, 4}), Kind::kAllGather);
  EXPECT_EQ(kind({Partial()}, {Shard(0)}, {8, 4}), Kind::kReduceScatter);
  EXPECT_EQ(kind({Shard(0)}, {Shard(1)}, {8, 4}), Kind::kExchange);
  EXPECT_EQ(kind_of(one, {Replicate()}, mesh, {Replicate()}, {8, 4}, library_folds()), Kind::kBroadcast);
}

TEST(DevicePlan, UnevenPartsArePaddedWhileThatCostsLittle) {
  const DeviceMesh mesh("cpu", {4}, {0, 1, 2, 3});
  const TensorMeta* split = intern_meta({7, 4}, kFloat32, Layout(mesh, {Shard(0)}, 2));
  const TensorMeta* whole = intern_meta({7, 4}, kFloat32, Layout(mesh, {Replicate()}, 2));
  const RedistributePlan plan = make_redistribute_plan(split, whole);
  const DevicePlan gathers = plan_for_device(plan, *split, *whole, 3, block_binding(8, 2), library_folds());
  EXPECT_EQ(gathers.steps.at(0).count, 8);
  EXPECT_EQ(gathers.steps.at(0).from_shape, Shape({1, 4}));
  // One row on four devices.
  EXPECT_EQ(kind_of(mesh, {Shard(0)}, mesh, {Replicate()}, {1, 4}, library_folds()), Kind::kExchange);
}

TEST(DevicePlan, WhatTheLibraryMayNotFoldIsFoldedHere) {
  const DeviceMesh mesh("cpu", {4}, {0, 1, 2, 3});
  const CollectiveRules ordered{.ordered_folds = true, .can_reduce = library_folds().can_reduce};
  const CollectiveRules unable{.ordered_folds = false, .can_reduce = [](DType, ReduceOp) { return false; }};
  for (const CollectiveRules& rules : {ordered, unable}) {
    EXPECT_EQ(kind_of(mesh, {Partial()}, mesh, {Replicate()}, {8, 4}, rules), Kind::kExchange);
    EXPECT_EQ(kind_of(mesh, {Shard(0)}, mesh, {Replicate()}, {8, 4}, rules), Kind::kAllGather);
  }
}

TEST(DevicePlan, DevicesOnOneAcceleratorHaveNoCollective) {
  const DeviceBinding binding = block_binding(8, 2);
  EXPECT_TRUE(have_own_accelerators({0, 1, 4, 5}, binding, {4, 4}));
  EXPECT_TRUE(have_own_accelerators({0, 4}, binding, {1, 1}));
  EXPECT_FALSE(have_own_accelerators({0, 1}, binding, {1, 1}));
  EXPECT_FALSE(have_own_accelerators({0, 4}, binding, {1, 0}));
}

}  // namespace
}  // namespace dtorch
