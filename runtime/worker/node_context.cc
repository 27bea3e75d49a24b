#include "runtime/worker/node_context.h"

#include <algorithm>
#include <tuple>

namespace dtorch {

DeviceStatus DeviceStatistics::status() const {
  const auto rank = [](const DeviceStatus& status) {
    const int activity = status.activity == Activity::kRuns ? 0 : status.activity == Activity::kWaits ? 1 : 2;
    return std::tuple(activity, status.at.sequence, status.at.op_index);
  };
  DeviceStatus most = positions.front().status(device);
  for (size_t i = 1; i < positions.size(); ++i) {
    const DeviceStatus other = positions[i].status(device);
    if (rank(other) < rank(most)) most = other;
  }
  return most;
}

void NodeContext::report(int64_t device, Sequence sequence, uint32_t op_index, const std::string& message,
                         std::optional<DeviceMemory> memory) {
  if (aborting.load(std::memory_order_relaxed)) return;
  ErrorReport report;
  report.epoch = config.epoch;
  report.node = node;
  report.device = device;
  report.sequence = sequence;
  report.op_index = op_index;
  report.message = message;
  report.memory = std::move(memory);
  // Before the acknowledgement on its way. What the node as a whole says needs nobody else to pass it on.
  control.send(device < 0 ? kController : tree.parent(node), encode(report));
}

void NodeContext::start_trace() {
  if (trace_kept_) return;
  trace_kept_ = std::make_unique<NodeTrace>(devices.size(), num_streams());
  trace.store(trace_kept_.get(), std::memory_order_release);
}

void NodeContext::reset_peaks() {
  for (const DeviceStatistics& device : devices) {
    device.memory->peak.store(device.memory->in_use.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
}

void NodeContext::fill(Ack& ack) const {
  ack.epoch = config.epoch;
  ack.node = node;
  for (const DeviceStatistics& device : devices) {
    const int64_t in_use = device.memory->in_use.load(std::memory_order_relaxed);
    const int64_t peak = device.memory->peak.load(std::memory_order_relaxed);
    ack.device_bytes_in_use.push_back(in_use);
    ack.device_peak_bytes.push_back(peak);
    ack.bytes_in_use += in_use;
    ack.peak_bytes = std::max(ack.peak_bytes, peak);
    ack.kernels_run += device.kernels_run.load(std::memory_order_relaxed);
    ack.device_graphs.captured += device.graphs.captured.load(std::memory_order_relaxed);
    ack.device_graphs.launched += device.graphs.launched.load(std::memory_order_relaxed);
    ack.device_graphs.kernels += device.graphs.kernels.load(std::memory_order_relaxed);
    for (size_t i = 0; i < kNumGraphFallbacks; ++i)
      ack.device_graphs.fallbacks[i] += device.graphs.fallbacks[i].load(std::memory_order_relaxed);
  }
  if (const Transport* transport = comm.transport()) {
    ack.data_bytes_sent = transport->bytes_sent();
    ack.data_messages_sent = transport->messages_sent();
  }
}

}  // namespace dtorch
