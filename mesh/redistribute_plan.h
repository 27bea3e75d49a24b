// Redistribution plans (D6): a pure function of (source meta, destination meta, binding), evaluated by each Sub-Controller for its
// own devices. The general mechanism is box intersection: a destination device lists the pieces that it lacks and who sends them.
// A Partial axis of the source that isn't Partial in the destination is reduced in a stage of its own (reduce-scatter into
// slices, folded in mesh order), after which slices are gathered. So every pair of layouts has at most three stages and moves
// what a ring would.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mesh/layout.h"

namespace dtorch {

// One destination box on one device: the sources that hold (parts of) it. One source: a copy. Several: fold them in this order
// with `reduce` (mesh order, so that bits don't depend on nodes).
struct Piece {
  Box box;                           // global coordinates
  std::vector<int64_t> sources;      // device numbers, in fold order
};

// One stage: every device of `to`'s mesh gets its box of `to` from devices of `from`'s mesh.
struct Stage {
  const TensorMeta* from = nullptr;
  const TensorMeta* to = nullptr;
  // Partial axes of `from` that this stage folds (empty: pure copy) and with what.
  AxisList folded_axes;
  ReduceOp reduce = ReduceOp::kSum;
  // Divide after the fold (avg): number of parts, else 1.
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
  // Bytes that devices receive from other devices, summed over devices.
  int64_t bytes_moved(const DeviceBinding& binding) const;
};

// source and destination have the same global shape and dtype; their meshes may differ.
RedistributePlan make_redistribute_plan(const TensorMeta* source, const TensorMeta* destination);

// What `device` (a member of stage.to's mesh) must get, in ascending order of box offset. Boxes are disjoint and cover its box.
// A copy names the nearest holder: itself, else one on its node, else a replica chosen by a formula that spreads the load.
// A destination that is Partial on an axis where the source is not: position 0 of the axis holds the value, the other positions
// have a Piece with no sources, which means the reduce operator's identity.
std::vector<Piece> pieces_for(const Stage& stage, int64_t device, const DeviceBinding& binding);

}  // namespace dtorch
