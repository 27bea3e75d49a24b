// An operator spec lowered to the devices of one node: what each stream does when it meets a call of it. Made once by
// the Sub-Controller's thread when the spec arrives, immutable afterwards; lives as long as the Sub-Controller.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/transfer.h"
#include "runtime/worker/local_move.h"
#include "runtime/worker/node_context.h"

namespace dtorch {

enum class Action : uint8_t {
  kSkip,  // the device has no part in it; inputs at their last use are still released
  kKernel,
  kAlias,  // redistribute to the same layout: the result is the source
  kLocal,  // redistribute without other devices
  kMove,   // redistribute through the data plane
  kRead,
};

struct LocalSpec {
  Action action = Action::kSkip;
  LocalOperator local;
  KernelFn kernel = nullptr;
  std::vector<bool> holds_input;  // the device is in the input's mesh
  bool uses_feed = false;
  LocalMove move;  // kLocal
  // kRead: the device sends its part when the whole tensor is read. Of the holders of one box the first in mesh order
  // does.
  bool sends_box = false;
};

struct LoweredSpec {
  OperatorSpec spec;
  const OperatorDef* def = nullptr;
  bool uses_feed = false;
  // The call has a number in the total order of transfers (moves_data.h), on every node.
  bool moves = false;
  std::shared_ptr<const NodePlan> plan;  // moves
  bool takes_part = false;               // moves: a device of this node is a source or a destination
  std::vector<LocalSpec> devices;        // by local index
  int32_t num_users = 0;                 // devices of this node with action kKernel
};

// local_devices: device numbers by local index. Throws what is wrong with the spec (DecodeError, InternalError).
std::unique_ptr<const LoweredSpec> lower_spec(OperatorSpec spec, const std::vector<int64_t>& local_devices,
                                              const NodeContext& node, DeviceBackend& backend);

}  // namespace dtorch
