// Messages down the tree of Sub-Controllers, and acknowledgements and errors up.
#include "runtime/comm/fan_out.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

TEST(FanOut, EveryNodeHasOneParentAndNoMoreChildrenThanTheWidth) {
  for (int32_t width : {1, 2, 3, 8}) {
    for (int32_t num_nodes : {1, 2, 7, 8, 9, 100}) {
      const FanOut tree(num_nodes, width);
      std::set<int32_t> reached;
      for (int32_t of = kController; of < num_nodes; ++of) {
        const std::span<const int32_t> children = tree.children(of);
        EXPECT_LE(children.size(), static_cast<size_t>(width));
        for (int32_t child : children) {
          EXPECT_TRUE(reached.insert(child).second);
          EXPECT_EQ(tree.parent(child), of);
          EXPECT_TRUE(tree.is_below(child, of));
          EXPECT_FALSE(tree.is_below(of, child));
          EXPECT_TRUE(of == kController ? tree.branch_of(child) == child : tree.branch_of(child) == tree.branch_of(of));
        }
      }
      EXPECT_EQ(reached.size(), static_cast<size_t>(num_nodes));
    }
  }
}

TEST(FanOut, TheControllerHasOneChildAsSoonAsThereAreMoreNodesThanTheWidth) {
  EXPECT_EQ(FanOut(8, 8).children(kController).size(), 8u);
  EXPECT_EQ(FanOut(8, 8).children(0).size(), 0u);
  for (int32_t num_nodes : {9, 100, 512}) {
    const FanOut tree(num_nodes, 8);
    EXPECT_EQ(tree.children(kController).size(), 1u);
    EXPECT_EQ(tree.children(0).size(), 8u);
  }
}

TEST(FanOut, LostNodesAreLeftOut) {
  const FanOut tree({1, 4, 5, 9}, 2);
  const auto children = [&](int32_t of) {
    const std::span<const int32_t> nodes = tree.children(of);
    return std::vector<int32_t>(nodes.begin(), nodes.end());
  };
  EXPECT_EQ(children(kController), (std::vector<int32_t>{1}));
  EXPECT_EQ(children(1), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(children(4), (std::vector<int32_t>{9}));
  EXPECT_EQ(tree.parent(9), 4);
  EXPECT_EQ(tree.branch_of(9), 1);
  EXPECT_TRUE(tree.is_below(9, 1));
  EXPECT_FALSE(tree.is_below(9, 5));
  EXPECT_EQ(FanOut({0, 2}, 8).children(kController).size(), 2u);
  EXPECT_EQ(FanOut({0, 2}, 8).branch_of(2), 2);
}

std::vector<int32_t> one_each(int32_t nodes) {
  std::vector<int32_t> node_of_device(static_cast<size_t>(nodes));
  std::iota(node_of_device.begin(), node_of_device.end(), 0);
  return node_of_device;
}

TEST(FanOutTree, ThirteenNodesWorkThroughTheFirst) {
  Cluster cluster(one_each(13), 2);
  const DeviceMesh mesh = init_device_mesh("cpu", {13});
  const TensorMeta* x = meta(mesh, {26}, {Shard(0)});
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, x}}).call(ops().add, {{0, x}, {0, x}}, {{1, x}});
  writer.call(ops().read, {{1, x}}, {}, {1, -1}).urgent();
  const Sequence sequence = cluster.send(writer);
  cluster.wait_for(sequence);
  const std::map<int64_t, int64_t> values = cluster.read(1, {26});
  ASSERT_EQ(values.size(), 26u);
  for (const auto& [at, value] : values) EXPECT_EQ(value, 2 * at);
  for (int32_t node = 1; node < 13; ++node) EXPECT_FALSE(cluster.acknowledged(node, sequence)) << node;
  EXPECT_EQ(cluster.end(0), std::vector<int>(13, 0));
}

TEST(FanOutTree, AnErrorComesBeforeTheAcknowledgement) {
  for (int turn = 0; turn < 20; ++turn) {
    Cluster cluster(one_each(7), 2);
    const DeviceMesh last_node("cpu", {1}, {6});
    const TensorMeta* x = meta(last_node, {2}, {Replicate()});
    PieceWriter writer;
    writer.call(ops().fail, {}, {{0, x}}).urgent();
    const Sequence sequence = cluster.send(writer);
    cluster.wait_for(sequence);
    ASSERT_EQ(cluster.errors().size(), 1u);
    EXPECT_EQ(cluster.errors()[0].node, 6);
    EXPECT_EQ(cluster.errors()[0].sequence, sequence);
  }
}

TEST(FanOutTree, HostDataGoWhereTheyAreUsed) {
  Cluster cluster(one_each(7), 2);
  const DeviceMesh two("cpu", {2}, {0, 5});
  const TensorMeta* x = meta(two, {4}, {Shard(0)});
  cluster.feed(9, {1, 2, 3, 4}, {0, 5});
  PieceWriter writer;
  writer.call(ops().from_host, {}, {{0, x}}, {9}).call(ops().read, {{0, x}}, {}, {1, -1}).urgent();
  cluster.wait_for(cluster.send(writer));
  EXPECT_TRUE(cluster.errors().empty());
  EXPECT_EQ(cluster.read(1, {4}), (std::map<int64_t, int64_t>{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
}

TEST(FanOutTree, StatisticsOfAllNodesComeWhenTheyAreWanted) {
  Cluster cluster(one_each(7), 2);
  const DeviceMesh mesh = init_device_mesh("cpu", {7});
  const TensorMeta* x = meta(mesh, {7}, {Shard(0)});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1});
  cluster.wait_for(cluster.send(writer));
  writer.statistics();
  cluster.wait_for(cluster.send(writer));
  for (int32_t node = 0; node < 7; ++node) {
    EXPECT_EQ(cluster.last_ack(node).kernels_run, 1) << node;
    EXPECT_EQ(cluster.last_ack(node).bytes_in_use, 8) << node;
  }
}

}  // namespace
}  // namespace dtorch::testing_worker
