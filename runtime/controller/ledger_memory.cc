// Ledger: what a device's memory holds, in words. Devices tell slots and bytes; which call made a value, and with what
// layout, is known here.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/controller/ledger.h"

namespace dtorch {

namespace {

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", value / (int64_t{1} << 30));
  if (bytes >= int64_t{1} << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
  if (bytes >= int64_t{1} << 10) return fmt::format("{:.1f} KiB", value / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

}  // namespace

const GraphStream* Ledger::stream_of(GraphId graph) const {
  for (const GraphStream* stream : streams_) {
    if (stream->link->id == graph) return stream;
  }
  return nullptr;
}

std::optional<OperandId> Ledger::slot_of(const GraphStream& stream, const LiveTensor& tensor, const Place& before) {
  if ((tensor.slot & kNameInInstance) == 0) return tensor.slot;
  const OperandId name = tensor.slot & ~kNameInInstance;
  for (auto at = stream.unsettled.rbegin(); at != stream.unsettled.rend(); ++at) {
    const LedgerEntry& entry = **at;
    if (entry.sequence > before.sequence || entry.replay == nullptr) continue;
    if (name >= entry.replay->slots.size() || entry.replay->slots[name] > kMaxOperand) return std::nullopt;
    return entry.replay->slots[name];
  }
  return std::nullopt;
}

OperandOrigin Ledger::origin_at(const GraphStream& stream, OperandId slot, const Place& before) const {
  // From the back: the last write of the slot, and where that is an alias, of what it aliases before it.
  for (size_t e = stream.unsettled.size(); e-- > 0;) {
    LedgerEntry& entry = *stream.unsettled[e];
    if (entry.sequence > before.sequence) continue;
    const LogicalGraph& graph = entry.calls();
    const size_t end = entry.sequence < before.sequence ? graph.operators.size() : before.op_index;
    for (size_t i = end; i-- > 0;) {
      const Operator& op = graph.operators[i];
      const std::span<const OperandId> outputs = graph.outputs(op);
      const auto written = std::find(outputs.begin(), outputs.end(), slot);
      if (written == outputs.end()) continue;
      const auto output = static_cast<uint32_t>(written - outputs.begin());
      if (op.spec != kAliasSpec) return {op.spec, output, graph.source_lines[i]};
      slot = graph.inputs(op)[output] & kMaxOperand;
    }
  }
  return stream.origins.find(slot);
}

std::string Ledger::memory_text(const DeviceMemory& memory, const Place& before, size_t most,
                                const TensorNames& names) const {
  std::string text = fmt::format("device {} holds {} (peak {}) in {} tensors", memory.device,
                                 bytes_text(memory.bytes_in_use), bytes_text(memory.peak_bytes), memory.num_tensors);
  for (size_t i = 0; i < std::min(most, memory.largest.size()); ++i) {
    const LiveTensor& tensor = memory.largest[i];
    text += fmt::format("\n  {:>10}  ", bytes_text(tensor.storage_bytes));
    const GraphStream* stream = stream_of(tensor.graph);
    const std::optional<OperandId> slot = stream ? slot_of(*stream, tensor, before) : std::nullopt;
    const OperandOrigin origin = slot ? origin_at(*stream, *slot, before) : OperandOrigin();
    if (origin.spec == kReleaseSpec) {
      text += stream == nullptr ? "of a Graph that has ended" : "of operators under way";
      continue;
    }
    if (const auto name = names.find({tensor.graph, *slot}); name != names.end()) text += name->second + ", ";
    text += stream->specs.describe_output(origin.spec, origin.output) + ", made by [" +
            stream->specs.op_name(origin.spec) + "]";
    if (origin.where.line != 0) text += " called at " + origin.where.str();
  }
  return text;
}

std::string Ledger::describe_memory(const DeviceMemory& memory, size_t most, const TensorNames& names) const {
  std::lock_guard lock(mutex_);
  return memory_text(memory, {~Sequence{0}, 0}, most, names);
}

const OperatorSpec* Ledger::spec_of(GraphId graph, uint32_t spec) const {
  std::lock_guard lock(mutex_);
  const GraphStream* stream = stream_of(graph);
  return stream == nullptr ? nullptr : stream->specs.spec(spec);
}

}  // namespace dtorch
