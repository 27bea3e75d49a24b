// Redistribution as a Sub-Controller runs it: aliases, local moves and transfers between nodes.
#include <gtest/gtest.h>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh four = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});

std::map<int64_t, int64_t> numbers(int64_t count) {
  std::map<int64_t, int64_t> values;
  for (int64_t i = 0; i < count; ++i) values[i] = i;
  return values;
}

// Every pair of these layouts, in one piece, over how many nodes the devices lie on.
void check_all_pairs(std::vector<int32_t> node_of_device) {
  Cluster cluster(std::move(node_of_device));
  const Shape shape{5, 3};
  const std::vector<Placements> all = {{Replicate(), Replicate()}, {Shard(0), Replicate()}, {Replicate(), Shard(1)},
                                       {Shard(0), Shard(0)},       {Shard(1), Shard(0)},    {Partial(), Replicate()},
                                       {Shard(0), Partial()}};
  PieceWriter writer;
  uint64_t read = 0;
  Sequence final = 0;
  for (const Placements& from : all) {
    for (const Placements& to : all) {
      const TensorMeta *plain = meta(four, shape, {Replicate(), Replicate()}), *x = meta(four, shape, from),
                       *y = meta(four, shape, to);
      writer.call(ops().iota, {}, {{0, plain}}).call(ops().redistribute, {{last(0), plain}}, {{1, x}});
      writer.call(ops().redistribute, {{1, x}}, {{2, y}}).call(ops().redistribute, {{last(2), y}}, {{3, plain}});
      writer.call(ops().read, {{last(3), plain}}, {}, {static_cast<int64_t>(read++), -1}).release({1});
    }
    final = cluster.send(writer);
  }
  cluster.wait_for(final);
  EXPECT_TRUE(cluster.errors().empty());
  for (uint64_t i = 0; i < read; ++i) EXPECT_EQ(cluster.read(i, shape), numbers(15)) << "pair " << i;
  writer.release({});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 0);
  for (int code : cluster.end(0)) EXPECT_EQ(code, 0);
}

TEST(Redistribute, EveryPairOfLayoutsOnOneNode) { check_all_pairs({0, 0, 0, 0}); }
TEST(Redistribute, EveryPairOfLayoutsOnTwoNodes) { check_all_pairs({0, 0, 1, 1}); }
TEST(Redistribute, EveryPairOfLayoutsOnThreeNodesOutOfOrder) { check_all_pairs({2, 0, 1, 0}); }

TEST(Redistribute, MovesBetweenMeshesWhileOthersWork) {
  Cluster cluster({0, 1, 2});
  const DeviceMesh first("cpu", {1}, {0}), others("cpu", {2}, {1, 2});
  const TensorMeta* x = meta(first, {8}, {Replicate()});
  const TensorMeta* y = meta(others, {8}, {Shard(0)});
  PieceWriter writer;
  Sequence final = 0;
  for (int64_t i = 0; i < 50; ++i) {
    writer.call(ops().iota, {}, {{0, x}}).call(ops().redistribute, {{last(0), x}}, {{1, y}});
    writer.call(ops().fill, {}, {{2, y}}, {i}).call(ops().add, {{last(1), y}, {last(2), y}}, {{3, y}});
    writer.call(ops().redistribute, {{last(3), y}}, {{4, x}}).call(ops().read, {{last(4), x}}, {}, {i, -1});
    final = cluster.send(writer);
  }
  cluster.wait_for(final);
  for (int64_t i = 0; i < 50; ++i) {
    std::map<int64_t, int64_t> values = cluster.read(static_cast<uint64_t>(i), {8});
    ASSERT_EQ(values.size(), 8u);
    for (auto [element, value] : values) EXPECT_EQ(value, element + i);
  }
  EXPECT_GT(cluster.last_ack(0).data_bytes_sent, 0);
}

}  // namespace
}  // namespace dtorch::testing_worker
