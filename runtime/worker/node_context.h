// NodeContext: what the threads of a Sub-Controller share. Counted, because transfers that never finish (a lost peer)
// may outlive the Sub-Controller on the comm thread.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include "runtime/comm/comm_thread.h"
#include "runtime/worker/acks.h"
#include "runtime/worker/device_backend.h"

namespace dtorch {

struct DeviceStatistics {
  MemoryCounter* memory = nullptr;
  std::atomic<int64_t> kernels_run{0};
};

struct NodeContext {
  NodeContext(int32_t node_number, ControlEndpoint& control_endpoint, CommThread& comm_thread)
      : node(node_number),
        control(control_endpoint),
        comm(comm_thread),
        acks(control_endpoint, [this](Ack& ack) { fill(ack); }) {}

  const int32_t node;
  ControlEndpoint& control;
  CommThread& comm;
  Config config;  // fixed before any stream starts, as the next two
  DeviceBinding binding;
  std::deque<DeviceStatistics> devices;  // by local index
  Acks acks;
  // The job ends with an error: streams run nothing more, nobody waits for transfers, nothing is sent.
  std::atomic<bool> aborting{false};

  // Peaks of this node's devices count from now on. The Sub-Controller's thread.
  void reset_peaks();
  void report(int64_t device, Sequence sequence, uint32_t op_index, const std::string& message);

 private:
  void fill(Ack& ack) const;
};

}  // namespace dtorch
