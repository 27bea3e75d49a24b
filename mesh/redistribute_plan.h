// Redistribution plans (D6): a pure function of (source meta, destination meta, binding), evaluated by each
// Sub-Controller for its own devices. The general mechanism is box intersection: a destination device lists the pieces
// that it lacks and who sends them. A Partial axis of the source that isn't Partial in the destination is reduced in a
// stage of its own (reduce-scatter into slices, folded in mesh order), after which slices are gathered. So a pair of
// layouts has one stage for each kind of reduction that is folded, and at most one copy; it moves what a ring would.
//
// What a Partial destination axis holds that the source doesn't have as it is: for sum, position 0 holds the value and
// the others hold 0; for avg, max and min every position holds the value. A Partial axis that both have (same mesh,
// same reduction) is kept part by part. Kinds of reduction that are folded in one plan are folded in the order of their
// first axis.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mesh/layout.h"

namespace dtorch {

// One destination box on one device: the sources that hold (parts of) it. One source: a copy. Several: fold them in
// this order with `reduce` (mesh order, so that bits don't depend on nodes).
struct PlanPiece {
  Box box;                       // global coordinates
  std::vector<int64_t> sources;  // device numbers, in fold order
};

// One stage: every device of `to`'s mesh gets its box of `to` from devices of `from`'s mesh.
struct Stage {
  const TensorMeta* from = nullptr;
  const TensorMeta* to = nullptr;
  // Partial axes of `from` that this stage folds, ascending (empty: pure copy), and with what. Never kAvg: that folds
  // as kSum, with a divisor.
  AxisList folded_axes;
  ReduceOp reduce = ReduceOp::kSum;
  // Divide after the fold: number of parts of an avg, else 1.
  int64_t divisor = 1;
};

enum class PlanKind : uint8_t {
  kNothing,   // same layout: the result is the source
  kLocal,     // every device makes its part from its own part alone (slice, owner keeps / identity)
  kTransfer,  // data moves between devices
};

struct RedistributePlan {
  PlanKind kind = PlanKind::kNothing;
  std::vector<Stage> stages;
  std::string explain(const DeviceBinding& binding) const;  // steps, bytes a device, peak
  // The most that one device holds and receives at a time, the tensor before and after included.
  int64_t peak_bytes(const DeviceBinding& binding) const;
  // Bytes that devices receive from other devices, summed over devices.
  int64_t bytes_moved(const DeviceBinding& binding) const;
};

// source and destination have the same global shape and dtype; their meshes may differ.
RedistributePlan make_redistribute_plan(const TensorMeta* source, const TensorMeta* destination);

// What `device` (a member of stage.to's mesh) must get, in ascending order of box offset. Boxes are disjoint and cover
// its box. A copy names the nearest holder: itself, else one on its node, else a replica chosen by a formula that
// spreads the load. A fold names one holder (the nearest) of each part, in mesh order of the folded axes. A destination
// that is Partial(sum) on an axis where the source is not: position 0 of the axis holds the value, the other positions
// have a PlanPiece with no sources, which means 0. An empty box has no pieces.
std::vector<PlanPiece> pieces_for(const Stage& stage, int64_t device, const DeviceBinding& binding);

// Bytes that `device` receives from other devices in a stage.
int64_t bytes_received(const Stage& stage, int64_t device, const DeviceBinding& binding);

// What a redistribution would do, without a tensor: RedistributePlan::explain for devices that share one node. The
// layouts may be of different meshes.
std::string explain_redistribute(const Layout& from, const Layout& to, const Shape& global_shape,
                                 DType dtype = kFloat32);

// Bytes that the plan from one layout to the other moves between devices, without making the plan's metas. Exact.
int64_t redistribute_bytes(const Shape& global_shape, DType dtype, const Layout& from, const Layout& to);

}  // namespace dtorch
