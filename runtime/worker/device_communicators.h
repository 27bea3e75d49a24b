// The communicators of a node's devices: one for each distinct list of devices and Graph, made when the first call that
// needs it comes, at the same call on all nodes. The node of the first device makes the id and sends it to the others
// over the data plane.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mesh/layout.h"
#include "runtime/accelerator/accelerator.h"
#include "runtime/comm/comm_thread.h"
#include "runtime/graph/logical_graph.h"

namespace dtorch {

class DeviceCommunicators : public std::enable_shared_from_this<DeviceCommunicators> {
 public:
  using Group = std::vector<int64_t>;  // devices by rank
  DeviceCommunicators(CommunicatorFactory& factory, CommThread& comm, int32_t node, uint32_t epoch, double deadline_s)
      : factory_(factory), comm_(comm), node_(node), epoch_(epoch), deadline_s_(deadline_s) {}

  // The Sub-Controller's thread, in the order of calls: the transfer with this number needs communicators of these
  // groups, which are this node's devices' and in one order on all nodes.
  void prepare(GraphId graph, const std::vector<Group>& groups, uint64_t number, const DeviceBinding& binding);
  // The device's rank in a group. By its stream; blocks at the first time until all ranks have joined. Throws
  // RuntimeFault.
  Communicator& of(GraphId graph, const Group& group, int64_t device, Accelerator& accelerator);
  // By the device's stream: the Graph is closed.
  void forget(GraphId graph, int64_t device);
  // Whoever waits goes on, and what is under way ends wherever it stands. Any thread.
  void cancel();
  CommunicatorFactory& factory() { return factory_; }

 private:
  class IdExchange;
  struct Entry {
    bool has_id = false;
    CommunicatorFactory::Id id;
    std::map<int64_t, std::unique_ptr<Communicator>> by_device;
    int64_t num_left = 0;  // devices of this node that haven't closed the Graph
  };
  void set_id(const std::shared_ptr<Entry>& entry, const CommunicatorFactory::Id& id);

  CommunicatorFactory& factory_;
  CommThread& comm_;
  const int32_t node_;
  const uint32_t epoch_;
  const double deadline_s_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<GraphId, Group>, std::shared_ptr<Entry>> entries_;  // under mutex_, as what they hold
  std::atomic<bool> is_over_{false};
};

}  // namespace dtorch
