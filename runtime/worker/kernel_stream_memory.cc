// KernelStream: what its device holds.
#include <algorithm>
#include <unordered_set>

#include "runtime/worker/kernel_stream.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch {

namespace {

// What a report shows of a device.
constexpr size_t kLargest = 32;

}  // namespace

DeviceMemory KernelStream::memory() const { return memory_with({}); }

DeviceMemory KernelStream::memory_with(const std::vector<std::pair<LiveTensor, const NativeTensor*>>& held) const {
  DeviceMemory memory{device_, statistics_.memory->in_use.load(std::memory_order_relaxed),
                      statistics_.memory->peak.load(std::memory_order_relaxed), 0};
  std::unordered_set<const void*> seen;
  const auto add = [&](GraphId graph, OperandId slot, const NativeTensor& value) {
    if (!value || !seen.insert(storage_of(value)).second) return;
    ++memory.num_tensors;
    memory.largest.push_back({graph, slot, value.storage_bytes()});
  };
  for (const auto& [tensor, value] : held) add(tensor.graph, tensor.slot, *value);
  const auto add_all = [&](GraphId graph, const std::vector<Blob>& blobs, OperandId kind) {
    for (size_t i = 0; i < blobs.size(); ++i) {
      const bool arrived = blobs[i].pending && blobs[i].pending->event.is_set();
      add(graph, kind | static_cast<OperandId>(i), arrived ? blobs[i].pending->value : blobs[i].value);
    }
  };
  for (const Table& table : tables_) {
    add_all(table.graph, table.slots, 0);
    add_all(table.graph, table.names, kNameInInstance);
  }
  const auto shown = std::min(kLargest, memory.largest.size());
  std::partial_sort(memory.largest.begin(), memory.largest.begin() + static_cast<std::ptrdiff_t>(shown),
                    memory.largest.end(),
                    [](const LiveTensor& a, const LiveTensor& b) { return a.storage_bytes > b.storage_bytes; });
  memory.largest.resize(shown);
  return memory;
}

}  // namespace dtorch
