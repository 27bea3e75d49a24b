#include "runtime/controller/profile.h"

#include <algorithm>
#include <map>

#include "mesh/redistribute_plan.h"
#include "ops/def/operator_def.h"
#include "ops/def/row_exchange.h"

namespace dtorch {

namespace {

constexpr const char* kRowExchange = "all-to-all of rows";

const char* kind_of(const Placement& from, const Placement& to) {
  if (from.is_partial()) return to.is_shard() ? "reduce-scatter" : "all-reduce";
  if (from.is_shard()) return to.is_shard() ? "all-to-all" : "all-gather";
  return "slice";
}

// Unless it is one of the list's words.
void append(std::string& list, const std::string& word) {
  if ((", " + list + ", ").find(", " + word + ", ") != std::string::npos) return;
  list += (list.empty() ? "" : ", ") + word;
}

// A call's number, and what its calls moved where only devices know that.
struct Moved {
  int64_t calls = 0;  // of the device that has most of them
  int64_t bytes = 0;
};
using MovedBySpec = std::map<std::pair<GraphId, uint32_t>, Moved>;

// What one spec's calls moved; without kind when they are no moves.
CommunicationEntry communication_of(const OperatorSpec& spec, const Moved& moved) {
  const TensorMeta *from = spec.inputs.empty() ? nullptr : spec.inputs[0],
                   *to = spec.outputs.empty() ? nullptr : spec.outputs[0];
  CommunicationEntry entry;
  switch (OperatorRegistry::global().at(spec.op).lowering) {
    case Lowering::kTransfer: {
      const int64_t bytes = redistribute_bytes(from->global_shape, from->dtype, from->layout, to->layout);
      if (bytes == 0) return entry;
      entry = communication_of(from->layout, to->layout);
      entry.bytes = moved.calls * bytes;
      break;
    }
    case Lowering::kExchange:
      entry = {.kind = kRowExchange, .axes = from->layout.mesh().axis_label(exchange_axis(spec))};
      entry.bytes = moved.bytes;
      break;
    case Lowering::kKernel:
    case Lowering::kRead:
      return entry;
  }
  entry.calls = moved.calls;
  return entry;
}

// Moves among the specs, by kind and axes.
std::vector<CommunicationEntry> communication(
    const MovedBySpec& specs, const std::function<const OperatorSpec*(GraphId, uint32_t spec)>& spec_of) {
  std::map<std::pair<std::string, std::string>, CommunicationEntry> by_kind;
  for (const auto& [key, moved] : specs) {
    const OperatorSpec* spec = spec_of(key.first, key.second);
    if (spec == nullptr) continue;
    const CommunicationEntry entry = communication_of(*spec, moved);
    if (entry.kind.empty()) continue;
    CommunicationEntry& sum = by_kind[{entry.kind, entry.axes}];
    sum.kind = entry.kind;
    sum.axes = entry.axes;
    sum.calls += entry.calls;
    sum.bytes += entry.bytes;
  }
  std::vector<CommunicationEntry> entries;
  for (auto& [key, entry] : by_kind) entries.push_back(std::move(entry));
  std::sort(entries.begin(), entries.end(),
            [](const CommunicationEntry& a, const CommunicationEntry& b) { return a.bytes > b.bytes; });
  return entries;
}

}  // namespace

CommunicationEntry communication_of(const Layout& from, const Layout& to) {
  CommunicationEntry entry;
  if (!(from.mesh() == to.mesh())) return {.kind = "send", .axes = "other devices"};
  for (int64_t axis = 0; axis < static_cast<int64_t>(from.placements().size()); ++axis) {
    if (from.placement(axis) == to.placement(axis)) continue;
    append(entry.kind, kind_of(from.placement(axis), to.placement(axis)));
    append(entry.axes, from.mesh().axis_label(axis));
  }
  if (entry.kind.empty()) entry.kind = "all-to-all";  // only the order of the axes that split a dim changes
  return entry;
}

Profile summarize_profile(const std::vector<Answer>& answers, int64_t num_devices,
                          const std::function<const OperatorSpec*(GraphId, uint32_t spec)>& spec_of) {
  Profile profile;
  profile.busy_share_per_device.assign(static_cast<size_t>(num_devices), 0);
  std::map<std::string, ProfileEntry> by_name;
  MovedBySpec moved;
  for (const Answer& answer : answers) {
    for (const DeviceProfile& device : answer.profiles) {
      profile.window_s = std::max(profile.window_s, static_cast<double>(device.window_ns) * 1e-9);
      int64_t busy_ns = 0;
      for (const ProfileRow& row : device.rows) {
        const OperatorSpec* spec = spec_of(row.graph, row.spec);
        ProfileEntry& entry =
            by_name[spec == nullptr ? "of ended Graphs" : OperatorRegistry::global().at(spec->op).called()];
        entry.calls += row.calls;
        entry.run_s += static_cast<double>(row.run_ns) * 1e-9;
        entry.wait_s += static_cast<double>(row.wait_ns) * 1e-9;
        entry.bytes += row.bytes;
        busy_ns += row.run_ns;
        Moved& of_spec = moved[{row.graph, row.spec}];
        of_spec.calls = std::max(of_spec.calls, row.calls);
        of_spec.bytes += row.moved_bytes;
      }
      const auto number = static_cast<size_t>(device.device);
      if (number < profile.busy_share_per_device.size() && device.window_ns > 0) {
        profile.busy_share_per_device[number] = static_cast<double>(busy_ns) / static_cast<double>(device.window_ns);
      }
    }
  }
  for (auto& [name, entry] : by_name) {
    entry.name = name;
    profile.operators.push_back(std::move(entry));
  }
  std::sort(profile.operators.begin(), profile.operators.end(),
            [](const ProfileEntry& a, const ProfileEntry& b) { return a.run_s + a.wait_s > b.run_s + b.wait_s; });
  profile.communication = communication(moved, spec_of);
  return profile;
}

}  // namespace dtorch
