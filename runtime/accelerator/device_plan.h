// How a redistribution is done by collectives (communicator.h): a pure function of the plan and the device, so that all
// ranks of a communicator do the same.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "mesh/redistribute_plan.h"

namespace dtorch {

// What one device does, step by step: each step makes its part of a tensor from its part of the one before.
struct DevicePlan {
  enum class Kind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kExchange };
  // A box that this device gets: from one source, or folded from several, in order; without a source it is 0.
  struct Piece {
    struct Source {
      int32_t rank = 0;
      Box box;  // in the coordinates of the source's part
    };
    Box box;  // in the coordinates of this device's part
    std::vector<Source> sources;
  };
  struct Send {
    int32_t to = 0;  // rank
    Box box;         // in the coordinates of this device's part
  };
  struct Step {
    Kind kind = Kind::kExchange;
    std::vector<int64_t> group;  // devices by rank; its communicator
    int32_t rank = 0;            // of this device
    DType dtype = kFloat32;
    Shape from_shape, to_shape;  // this device's parts; where it has none, all zero
    bool is_source = false, is_destination = false;
    ReduceOp reduce = ReduceOp::kSum;
    int64_t divisor = 1;  // of an exchange's folds
    int32_t root = 0;     // of a broadcast
    // Gather and scatter: elements of every rank's part, the shorter ones padded, and where they lie in the part that
    // is gathered or scattered.
    int64_t count = 0;
    std::vector<Box> parts;
    // An exchange. Between two ranks pieces travel in the order of the receiver's, which is that of the sender's sends.
    std::vector<Send> sends;
    std::vector<Piece> pieces;
  };
  std::vector<Step> steps;
};

struct CollectiveRules {
  // Folds in mesh order, so that bits are the CPU's (--deterministic).
  bool ordered_folds = false;
  // What the library folds; others are folded here. Null: nothing.
  std::function<bool(DType, ReduceOp)> can_reduce;
};

// plan: of the two metas, with data that moves. `device` has a part of one of them.
DevicePlan plan_for_device(const RedistributePlan& plan, const TensorMeta& source, const TensorMeta& destination,
                           int64_t device, const DeviceBinding& binding, const CollectiveRules& rules);

// The devices of both meshes, in their order: the ranks of an exchange.
std::vector<int64_t> devices_of(const DeviceMesh& from, const DeviceMesh& to);

// Whether every device has an accelerator of its own; accelerators: of each node, 0 where they can't talk to others.
bool have_own_accelerators(const std::vector<int64_t>& devices, const DeviceBinding& binding,
                           const std::vector<int32_t>& accelerators);

}  // namespace dtorch
