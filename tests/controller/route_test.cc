// Who takes whose devices, and who keeps whose copies.
#include "runtime/controller/route.h"

#include <gtest/gtest.h>

#include "runtime/graph/snapshot.h"

namespace dtorch {
namespace {

Route route_of(std::vector<int32_t> node_of_device, std::vector<int32_t> live, int32_t num_nodes) {
  Route route;
  std::vector<int32_t> used(static_cast<size_t>(num_nodes));
  for (int32_t node : node_of_device) route.binding.slot_of_device.push_back(used[static_cast<size_t>(node)]++);
  route.binding.node_of_device = std::move(node_of_device);
  route.binding.num_nodes = num_nodes;
  route.tree = FanOut(std::move(live), 8);
  return route;
}

using Nodes = std::vector<int32_t>;

Nodes buddies(const Route& route, int32_t num_copies = 1) { return choose_places(route, num_copies).buddies; }

TEST(Route, BuddiesAreTheNextOrASpare) {
  EXPECT_EQ(buddies(route_of({0, 1, 2}, {0, 1, 2}, 3)), (Nodes{1, 2, 0}));
  EXPECT_EQ(buddies(route_of({0, 0, 2}, {0, 2}, 3)), (Nodes{2, kNoBuddy, 0}));
  EXPECT_EQ(buddies(route_of({0, 1, 2}, {0, 1, 2, 3, 4}, 5)), (Nodes{3, 4, 3, kNoBuddy, kNoBuddy}));
  EXPECT_EQ(buddies(route_of({0, 0}, {0}, 2)), (Nodes{kNoBuddy, kNoBuddy}));
}

TEST(Route, TwoBuddiesAreDifferentNodes) {
  EXPECT_EQ(buddies(route_of({0, 1}, {0, 1, 2, 3}, 4), 2), (Nodes{2, 3, 3, 2, kNoBuddy, kNoBuddy, kNoBuddy, kNoBuddy}));
  EXPECT_EQ(buddies(route_of({0, 1}, {0, 1, 2}, 3), 2), (Nodes{2, 1, 2, 0, kNoBuddy, kNoBuddy}));  // one spare is left
  EXPECT_EQ(buddies(route_of({0, 1, 2}, {0, 1, 2}, 3), 2), (Nodes{1, 2, 2, 0, 0, 1}));
  EXPECT_EQ(buddies(route_of({0, 1}, {0, 1}, 2), 2), (Nodes{1, kNoBuddy, 0, kNoBuddy}));
}

TEST(Route, ASpareComesFirstThenWhoHasTheCopies) {
  const Route plain = route_of({0, 0, 1, 2}, {0, 1, 2}, 3);
  const SnapshotPlaces kept = choose_places(plain, 1);
  const DeviceBinding to_buddy = rebind(plain, {0, 2}, kept);
  EXPECT_EQ(to_buddy.node_of_device, (Nodes{0, 0, 2, 2}));
  EXPECT_EQ(to_buddy.slot_of_device, (Nodes{0, 1, 1, 0}));  // those that were there keep their slots
  const Route spared = route_of({0, 0, 1, 2}, {0, 1, 2, 3, 4}, 5);
  for (const int32_t num_copies : {1, 2}) {
    const SnapshotPlaces places = choose_places(spared, num_copies);  // node 1's first is node 4
    EXPECT_EQ(rebind(spared, {0, 2, 3, 4}, places).node_of_device, (Nodes{0, 0, 4, 2}));
    // Both at once: each a spare of its own, though one has the copies of both.
    EXPECT_EQ(rebind(spared, {1, 3, 4}, places).node_of_device, (Nodes{3, 3, 1, 4}));
  }
  // The first buddy is lost too.
  EXPECT_EQ(rebind(plain, {0, 1}, choose_places(plain, 2)).node_of_device, (Nodes{0, 0, 1, 0}));
  EXPECT_EQ(rebind(plain, {0}, kept).node_of_device, (Nodes{0, 0, 0, 0}));
  EXPECT_EQ(rebind(plain, {2}, kept).slot_of_device, (Nodes{1, 2, 3, 0}));
}

}  // namespace
}  // namespace dtorch
