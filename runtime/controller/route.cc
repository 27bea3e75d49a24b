#include "runtime/controller/route.h"

#include <algorithm>

#include "runtime/graph/snapshot.h"

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

std::vector<int32_t> choose_buddies(const Route& route) {
  const std::vector<int32_t>& live = route.tree.nodes();
  const std::vector<int64_t> counts = devices_by_node(route.binding);
  std::vector<int32_t> spares;
  std::copy_if(live.begin(), live.end(), std::back_inserter(spares),
               [&](int32_t node) { return counts[static_cast<size_t>(node)] == 0; });
  std::vector<int32_t> buddies(counts.size(), kNoBuddy);
  size_t next_spare = 0;
  for (size_t i = 0; i < live.size(); ++i) {
    const auto node = static_cast<size_t>(live[i]);
    if (counts[node] == 0) continue;
    if (!spares.empty())
      buddies[node] = spares[next_spare++ % spares.size()];
    else if (live.size() > 1)
      buddies[node] = live[(i + 1) % live.size()];
  }
  return buddies;
}

DeviceBinding rebind(const Route& route, const std::vector<int32_t>& live, const std::vector<int32_t>& buddies) {
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
    const int32_t buddy = static_cast<size_t>(lost) < buddies.size() ? buddies[static_cast<size_t>(lost)] : kNoBuddy;
    const bool has_buddy = contains(live, buddy);
    if (has_buddy && counts[static_cast<size_t>(buddy)] == 0) return buddy;
    const int32_t spare = fewest(true);
    if (spare != kNoBuddy) return spare;
    return has_buddy ? buddy : fewest(false);
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
