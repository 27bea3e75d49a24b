#include "runtime/controller/route.h"

#include <algorithm>
#include <iterator>

namespace dtorch {

namespace {

std::vector<int64_t> devices_by_node(const DeviceBinding& binding) {
  std::vector<int64_t> counts(static_cast<size_t>(binding.num_nodes));
  for (int32_t node : binding.node_of_device) ++counts[static_cast<size_t>(node)];
  return counts;
}

bool contains(const std::vector<int32_t>& nodes, int32_t node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

}  // namespace

SnapshotPlaces choose_places(const Route& route, int32_t num_copies) {
  const std::vector<int32_t>& live = route.tree.nodes();
  const std::vector<int64_t> counts = devices_by_node(route.binding);
  std::vector<int32_t> spares;
  std::ranges::copy_if(live, std::back_inserter(spares),
                       [&](int32_t node) { return counts[static_cast<size_t>(node)] == 0; });
  SnapshotPlaces places{route.binding.node_of_device, {}, num_copies};
  const auto count = static_cast<size_t>(num_copies);
  places.buddies.assign(counts.size() * count, kNoBuddy);
  size_t first_spare = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    const auto node = static_cast<size_t>(live[i]);
    if (counts[node] == 0) continue;
    // Spares in turn, then the next ones.
    std::vector<int32_t> wanted;
    for (size_t k = 0; k < spares.size(); ++k) wanted.push_back(spares[(first_spare + k) % spares.size()]);
    ++first_spare;
    for (size_t k = 1; k < live.size(); ++k) {
      const int32_t next = live[(i + k) % live.size()];
      if (counts[static_cast<size_t>(next)] != 0) wanted.push_back(next);
    }
    wanted.resize(std::min(wanted.size(), count));
    std::ranges::copy(wanted, places.buddies.begin() + static_cast<std::ptrdiff_t>(node * count));
  }
  return places;
}

DeviceBinding rebind(const Route& route, const std::vector<int32_t>& live, const SnapshotPlaces& places) {
  DeviceBinding binding = route.binding;
  std::vector<int64_t> counts = devices_by_node(binding);
  const auto fewest = [&](bool only_spares) {
    int32_t best = kNoBuddy;
    for (int32_t node : live) {
      const int64_t count = counts[static_cast<size_t>(node)];
      if (only_spares && count != 0) continue;
      if (best == kNoBuddy || count < counts[static_cast<size_t>(best)]) best = node;
    }
    return best;
  };
  const auto target_for = [&](int32_t lost) {
    int32_t buddy = kNoBuddy;
    for (int32_t candidate : places.buddies_of(lost)) {
      if (!contains(live, candidate)) continue;
      if (counts[static_cast<size_t>(candidate)] == 0) return candidate;
      if (buddy == kNoBuddy) buddy = candidate;
    }
    const int32_t spare = fewest(true);
    if (spare != kNoBuddy) return spare;
    return buddy != kNoBuddy ? buddy : fewest(false);
  };
  for (int32_t lost = 0; lost < binding.num_nodes; ++lost) {
    if (contains(live, lost) || counts[static_cast<size_t>(lost)] == 0) continue;
    const int32_t target = target_for(lost);
    int64_t& count = counts[static_cast<size_t>(target)];
    for (size_t device = 0; device < binding.node_of_device.size(); ++device) {
      if (binding.node_of_device[device] != lost) continue;
      binding.node_of_device[device] = target;
      binding.slot_of_device[device] = static_cast<int32_t>(count++);
    }
    counts[static_cast<size_t>(lost)] = 0;
  }
  return binding;
}

}  // namespace dtorch
