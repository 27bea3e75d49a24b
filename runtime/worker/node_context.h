// NodeContext: what the threads of a Sub-Controller share. Counted, because transfers that never finish (a lost peer)
// may outlive the Sub-Controller on the comm thread.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>

#include "runtime/base/event_log.h"
#include "runtime/comm/comm_thread.h"
#include "runtime/comm/fan_out.h"
#include "runtime/comm/helper_threads.h"
#include "runtime/worker/acks.h"
#include "runtime/worker/device_backend.h"
#include "runtime/worker/device_communicators.h"
#include "runtime/worker/node_background.h"
#include "runtime/worker/stream_position.h"
#include "runtime/worker/tensor_pool.h"

namespace dtorch {

// DeviceGraphStats of one device, as they grow.
struct DeviceGraphCounts {
  std::atomic<int64_t> captured{0}, launched{0}, kernels{0};
  std::array<std::atomic<int64_t>, kNumGraphFallbacks> fallbacks = {};
};

// Of one device: written by its streams, read by any thread. A cache line of its own, since streams write all the time.
struct alignas(64) DeviceStatistics {
  DeviceStatistics(int64_t number, MemoryCounter* counter, size_t num_streams)
      : device(number), memory(counter), positions(num_streams) {
    for (size_t i = 0; i < num_streams; ++i) pools.emplace_back(*memory);
  }
  // What the device is doing: what its streams do, those that run first, and of equals the oldest work.
  DeviceStatus status() const;
  const int64_t device;
  MemoryCounter* const memory;
  std::atomic<int64_t> kernels_run{0};
  DeviceGraphCounts graphs;
  std::deque<TensorPool> pools;          // by compute stream
  std::deque<StreamPosition> positions;  // by compute stream
};

// What a node notes for a timeline. Each log is its thread's.
struct NodeTrace {
  NodeTrace(size_t num_devices, size_t num_streams) : streams(num_devices * num_streams) {}
  std::deque<EventLog<TraceEvent>> streams;  // by local index, then compute stream
  EventLog<TraceEvent> comm;
};

struct NodeContext {
  NodeContext(int32_t node_number, ControlEndpoint& control_endpoint, CommThread& comm_thread)
      : node(node_number),
        control(control_endpoint),
        comm(comm_thread),
        acks(control_endpoint, [this](Ack& ack) { fill(ack); }),
        background(control_endpoint, node_number) {}

  const int32_t node;
  ControlEndpoint& control;
  CommThread& comm;
  Config config;  // fixed before any stream starts, as the next three
  DeviceBinding binding;
  FanOut tree;
  // Numbers of effects that were had in an earlier epoch (ops/def/effects.h); before the streams see such a call.
  std::unordered_set<uint64_t> done_effects;
  std::deque<DeviceStatistics> devices;  // by local index
  // Of devices that run behind the host and can talk to those of other nodes; else null. Before the streams start.
  std::shared_ptr<DeviceCommunicators> communicators;
  int32_t num_accelerators = 0;  // of every node
  Acks acks;
  NodeBackground background;
  std::unique_ptr<HelperThreads> helpers;  // of the comm thread; fixed before any stream starts
  std::atomic<NodeTrace*> trace{nullptr};  // null: nobody wants a timeline
  // The job ends with an error: streams run nothing more, nobody waits for transfers, nothing is sent.
  std::atomic<bool> aborting{false};

  size_t num_streams() const { return static_cast<size_t>(config.compute_streams); }  // a device
  // Peaks of this node's devices count from now on. The Sub-Controller's thread.
  void reset_peaks();
  // memory: what the device held when it was short of it.
  void report(int64_t device, Sequence sequence, uint32_t op_index, const std::string& message,
              std::optional<DeviceMemory> memory = {});
  // From now on. The Sub-Controller's thread; once is enough.
  void start_trace();

 private:
  void fill(Ack& ack) const;
  std::unique_ptr<NodeTrace> trace_kept_;
};

}  // namespace dtorch
