// Who keeps which box of a snapshot; see snapshot.h.
#include <algorithm>
#include <unordered_map>

#include "runtime/graph/snapshot.h"

namespace dtorch {

namespace {

// The devices of a value's mesh by the box that they hold, each group in mesh order. Parts that are sums to be, or
// whose size is data, are nobody else's.
using Groups = std::vector<std::vector<int64_t>>;

Groups groups_of(const LiveValue& value) {
  const Layout& layout = value.meta->layout;
  const std::vector<int64_t>& devices = layout.mesh().devices();
  Groups groups;
  const bool are_alike = !value.is_ragged && !layout.has_partial();
  std::vector<Box> boxes;
  for (size_t index = 0; index < devices.size(); ++index) {
    Box box = layout.box_at(value.meta->global_shape, static_cast<int64_t>(index));
    size_t group = groups.size();
    if (are_alike) group = static_cast<size_t>(std::find(boxes.begin(), boxes.end(), box) - boxes.begin());
    if (group == groups.size()) {
      groups.emplace_back();
      boxes.push_back(std::move(box));
    }
    groups[group].push_back(devices[index]);
  }
  return groups;
}

// Values of one layout have the same groups; there are few layouts and many values.
class GroupCache {
 public:
  const Groups& of(const LiveValue& value) {
    const auto [at, is_new] = (value.is_ragged ? ragged_ : plain_).try_emplace(value.meta);
    if (is_new) at->second = groups_of(value);
    return at->second;
  }

 private:
  std::unordered_map<const TensorMeta*, Groups> plain_, ragged_;
};

int32_t node_of(std::span<const int32_t> node_of_device, int64_t device) {
  return node_of_device[static_cast<size_t>(device)];
}

// The nodes that keep copies of a group's box, from the node of its first device.
std::vector<int32_t> keepers_of(const std::vector<int64_t>& group, const SnapshotPlaces& places) {
  std::vector<int32_t> holders;
  for (int64_t device : group) {
    const int32_t node = node_of(places.node_of_device, device);
    if (std::ranges::find(holders, node) == holders.end()) holders.push_back(node);
  }
  std::vector<int32_t> keepers;
  for (int32_t buddy : places.buddies_of(holders.front())) {
    if (holders.size() + keepers.size() > static_cast<size_t>(places.num_copies)) break;
    if (buddy != kNoBuddy && std::ranges::find(holders, buddy) == holders.end()) keepers.push_back(buddy);
  }
  return keepers;
}

}  // namespace

std::vector<SnapshotCopy> copies_of(std::span<const LiveValue> values, const SnapshotPlaces& places) {
  std::vector<SnapshotCopy> copies;
  GroupCache cache;
  for (size_t i = 0; i < values.size(); ++i) {
    for (const std::vector<int64_t>& group : cache.of(values[i])) {
      for (int32_t keeper : keepers_of(group, places)) copies.push_back({i, group.front(), keeper});
    }
  }
  return copies;
}

SnapshotMoves moves_of(std::span<const LiveValue> values, const SnapshotPlaces& stored,
                       std::span<const int32_t> node_of_device, const std::vector<bool>& live) {
  SnapshotMoves result;
  GroupCache cache;
  const auto is_live = [&](int32_t node) { return live[static_cast<size_t>(node)]; };
  for (size_t i = 0; i < values.size(); ++i) {
    for (const std::vector<int64_t>& group : cache.of(values[i])) {
      // An equal part on the node itself, else of the first in mesh order whose node is there, else a copy in the same
      // way.
      const auto source_for = [&](int32_t to) -> std::optional<SnapshotMove> {
        std::optional<SnapshotMove> found;
        for (int64_t device : group) {
          const int32_t from = node_of(stored.node_of_device, device);
          if (!is_live(from) || (found && from != to)) continue;
          found = SnapshotMove{.owner = device, .from = from};
          if (from == to) break;
        }
        if (found) return found;
        for (int32_t keeper : keepers_of(group, stored)) {
          if (!is_live(keeper) || (found && keeper != to)) continue;
          found = SnapshotMove{.owner = group.front(), .from_copy = true, .from = keeper};
        }
        return found;
      };
      for (int64_t device : group) {
        const int32_t to = node_of(node_of_device, device);
        if (to == node_of(stored.node_of_device, device)) continue;
        std::optional<SnapshotMove> move = source_for(to);
        if (!move) {
          if (result.lost.empty() || result.lost.back() != i) result.lost.push_back(i);
          continue;
        }
        move->value = i;
        move->device = device;
        move->to = to;
        result.moves.push_back(*move);
      }
    }
  }
  return result;
}

}  // namespace dtorch
