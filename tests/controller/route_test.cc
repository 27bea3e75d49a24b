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

TEST(Route, BuddiesAreTheNextOrASpare) {
  EXPECT_EQ(choose_buddies(route_of({0, 1, 2}, {0, 1, 2}, 3)), (Nodes{1, 2, 0}));
  EXPECT_EQ(choose_buddies(route_of({0, 0, 2}, {0, 2}, 3)), (Nodes{2, kNoBuddy, 0}));
  EXPECT_EQ(choose_buddies(route_of({0, 1, 2}, {0, 1, 2, 3, 4}, 5)), (Nodes{3, 4, 3, kNoBuddy, kNoBuddy}));
  EXPECT_EQ(choose_buddies(route_of({0, 0}, {0}, 2)), (Nodes{kNoBuddy, kNoBuddy}));
}

TEST(Route, ASpareComesFirstThenWhoHasTheCopies) {
  const Route plain = route_of({0, 0, 1, 2}, {0, 1, 2}, 3);
  const DeviceBinding to_buddy = rebind(plain, {0, 2}, choose_buddies(plain));
  EXPECT_EQ(to_buddy.node_of_device, (Nodes{0, 0, 2, 2}));
  EXPECT_EQ(to_buddy.slot_of_device, (Nodes{0, 1, 1, 0}));  // those that were there keep their slots
  const Route spared = route_of({0, 0, 1, 2}, {0, 1, 2, 3, 4}, 5);
  const Nodes buddies = choose_buddies(spared);  // node 1's is node 4
  EXPECT_EQ(rebind(spared, {0, 2, 3, 4}, buddies).node_of_device, (Nodes{0, 0, 4, 2}));
  // Both at once: each a spare of its own, though one has the copies of both.
  EXPECT_EQ(rebind(spared, {1, 3, 4}, buddies).node_of_device, (Nodes{3, 3, 1, 4}));
  // The buddy is lost too.
  EXPECT_EQ(rebind(plain, {0}, choose_buddies(plain)).node_of_device, (Nodes{0, 0, 0, 0}));
  EXPECT_EQ(rebind(plain, {2}, choose_buddies(plain)).slot_of_device, (Nodes{1, 2, 3, 0}));
}

}  // namespace
}  // namespace dtorch
