// A redistribution among devices of this node that run behind the host: no message, no thread of its own. The stream
// whose source is enqueued last has every destination copy and fold, on its communication stream, what the plan says,
// in mesh order; events do the rest. Counted by the moves that it is for.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/transfer.h"
#include "runtime/worker/blob.h"
#include "runtime/worker/device_queue.h"

namespace dtorch {

struct PieceRun;

class DeviceMove {
 public:
  // A device's part on its way through the stages.
  struct Part {
    NativeTensor value;
    DeviceEventPtr made;
    PoisonPtr poison;
  };
  using Queues = std::map<int64_t, std::shared_ptr<DeviceQueue>>;  // by device

  // Whether all devices of the plan are this node's.
  static bool is_within_node(const NodePlan& plan);
  // arrivals: parallel to plan->local_destinations. The run isn't finished before the devices have done their parts.
  DeviceMove(std::shared_ptr<const NodePlan> plan, uint32_t op_index, Queues queues,
             std::vector<IntrusivePtr<Arrival>> arrivals, PieceRun* run);
  // By the stream of a source device, once.
  void provide(int64_t device, Part part);

 private:
  void run_stages() noexcept;
  Part build(const NodePlan::NodeStage& stage, const NodePlan::Destination& destination) const;
  void deliver(int64_t device, Part part);

  const std::shared_ptr<const NodePlan> plan_;
  const Place place_;
  const Queues queues_;
  std::vector<IntrusivePtr<Arrival>> arrivals_;
  PieceRun* const run_;
  std::map<int64_t, Part> parts_;  // by device; each source's is written by its stream before it counts missing_ down
  std::atomic<int64_t> missing_;
};

}  // namespace dtorch
