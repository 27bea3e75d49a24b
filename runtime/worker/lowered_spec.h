// An operator spec lowered to the devices of one node: what each stream does when it meets a call of it. Made once by
// the Sub-Controller's thread when the spec arrives, immutable afterwards; lives as long as the Sub-Controller.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "runtime/accelerator/device_plan.h"
#include "runtime/comm/row_exchange.h"
#include "runtime/comm/transfer.h"
#include "runtime/worker/local_move.h"
#include "runtime/worker/node_context.h"

namespace dtorch {

enum class Action : uint8_t {
  kSkip,  // the device has no part in it; inputs at their last use are still released
  kKernel,
  kAlias,  // redistribute to the same layout: the result is the source
  kLocal,  // redistribute without other devices
  kMove,   // redistribute, or an exchange of rows, through the data plane
  kRead,
};

struct LocalSpec {
  static constexpr size_t kMaxPreparedInputs = 4;
  Action action = Action::kSkip;
  LocalOperator local;
  KernelFn kernel = nullptr;
  // kKernel: runs in place of `kernel` where the operands allow it; null: never. Used by one stream alone.
  std::unique_ptr<PreparedKernel> prepared;
  ElementwisePrepared* on_memory = nullptr;        // `prepared`, when a call may run on bare memory
  TensorPool::Kind* output_kind = nullptr;         // of `prepared`
  std::vector<bool> holds_input;                   // the device is in the input's mesh
  uint32_t ragged_inputs = 0, ragged_outputs = 0;  // as of the OperatorDef
  bool may_fuse = false;  // kKernel, elementwise, on a device that runs behind the host: DeviceStream::fuse may take it
  bool uses_feed = false;
  bool has_effect = false;                        // outside
  LocalMove move;                                 // kLocal
  std::shared_ptr<const DevicePlan> collectives;  // kMove, by these; null: another way
  // kRead: the device sends its part when the whole tensor is read. Of the holders of one box the first in mesh order
  // does.
  bool sends_box = false;

  bool is_ragged_input(size_t i) const { return i < 32 && (ragged_inputs >> i & 1u) != 0; }
  bool is_ragged_output(size_t i) const { return i < 32 && (ragged_outputs >> i & 1u) != 0; }
};

struct LoweredSpec {
  OperatorSpec spec;
  const OperatorDef* def = nullptr;
  bool uses_feed = false;
  // The call has a number in the total order of transfers (moves_data.h), on every node.
  bool moves = false;
  std::shared_ptr<const NodePlan> plan;             // of a redistribution that moves
  std::shared_ptr<const RowExchangePlan> exchange;  // of an exchange of rows
  // Of the collectives that its devices have part in, in an order that all nodes have.
  std::vector<std::vector<int64_t>> groups;
  bool takes_part = false;         // moves: a device of this node is a source or a destination
  std::vector<LocalSpec> devices;  // by local index, then compute stream
  int32_t num_users = 0;           // devices of this node with action kKernel

  const std::vector<int64_t>& move_sources() const { return plan ? plan->local_sources : exchange->local_devices; }
  const std::vector<int64_t>& move_destinations() const {
    return plan ? plan->local_destinations : exchange->local_devices;
  }
};

// local_devices: device numbers by local index. Throws what is wrong with the spec (DecodeError, InternalError).
std::unique_ptr<const LoweredSpec> lower_spec(OperatorSpec spec, const std::vector<int64_t>& local_devices,
                                              NodeContext& node, DeviceBackend& backend);

}  // namespace dtorch
