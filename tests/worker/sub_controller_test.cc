// A Sub-Controller driven by hand-made pieces: order, lifetimes, donation, reads, host data, acknowledgements.
#include "runtime/worker/sub_controller.h"

#include <gtest/gtest.h>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh one_device = init_device_mesh("cpu", {1});
const DeviceMesh two_devices = init_device_mesh("cpu", {2});

std::map<int64_t, int64_t> all(int64_t count, auto value_of) {
  std::map<int64_t, int64_t> values;
  for (int64_t i = 0; i < count; ++i) values[i] = value_of(i);
  return values;
}

TEST(SubController, RunsAPieceOnEveryDeviceAndReadsAShardedValueOnce) {
  Cluster cluster({0, 0});
  const TensorMeta* x = meta(two_devices, {5, 3}, {Shard(0)});
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, x}})
      .call(ops().fill, {}, {{1, x}}, {100})
      .call(ops().add, {{0, x}, {1, x}}, {{2, x}});
  writer.call(ops().read, {{2, x}}, {}, {9, -1}).urgent();
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(9, {5, 3}), all(15, [](int64_t i) { return i + 100; }));
  EXPECT_EQ(cluster.num_boxes(9), 2u);
  EXPECT_TRUE(cluster.errors().empty());
  EXPECT_EQ(cluster.last_ack(0).kernels_run, 6);
}

TEST(SubController, ReadsAReplicatedValueFromOneHolder) {
  Cluster cluster({0, 1});
  const TensorMeta* x = meta(two_devices, {4}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, x}}).call(ops().read, {{0, x}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.num_boxes(1), 1u);
  EXPECT_EQ(cluster.read(1, {4}), all(4, [](int64_t i) { return i; }));
}

TEST(SubController, ReadsTheWholePartOfOneDeviceWhenAsked) {
  Cluster cluster({0, 1});
  const TensorMeta* x = meta(two_devices, {5}, {Shard(0)});
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, x}}).call(ops().read, {{0, x}}, {}, {1, 1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {5}), (std::map<int64_t, int64_t>{{3, 3}, {4, 4}}));
}

TEST(SubController, RunsOperatorsInOrderOverPiecesAndGraphs) {
  Cluster cluster({0, 0});
  notes().by_device.clear();
  const TensorMeta* x = meta(two_devices, {2}, {Replicate()});
  PieceWriter a(1), b(2);
  Sequence final = 0;
  for (int64_t i = 0; i < 100; ++i) {
    PieceWriter& writer = i % 2 == 0 ? a : b;
    writer.call(ops().fill, {}, {{0, x}}, {i}).call(ops().note, {{last(0), x}}, {}, {2 * i});
    writer.call(ops().fill, {}, {{1, x}}, {i}).call(ops().note, {{last(1), x}}, {}, {2 * i + 1});
    final = cluster.send(writer);
  }
  cluster.wait_for(final);
  for (int64_t device : {0, 1}) {
    std::vector<int64_t> order = notes().of(device);
    ASSERT_EQ(order.size(), 200u);
    for (int64_t i = 0; i < 200; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(SubController, FreesAValueAtItsReleaseAndAtItsLastUse) {
  Cluster cluster({0});
  const TensorMeta* big = meta(one_device, {1000}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, big}}, {1}).call(ops().fill, {}, {{1, big}}, {2});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 16000);
  writer.release({0});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 8000);
  writer.call(ops().note, {{last(1), big}}, {}, {0});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 0);
  EXPECT_EQ(cluster.last_ack(0).peak_bytes, 16000);
}

TEST(SubController, AKernelTakesOverOnlyAnInputThatNobodyElseHolds) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {3}, {Replicate()});
  PieceWriter writer;
  reuses() = 0;
  writer.call(ops().fill, {}, {{0, x}}, {5}).call(ops().fill, {}, {{1, x}}, {7});
  writer.call(ops().add, {{0, x}, {1, x}}, {{2, x}});  // not the last use
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(reuses(), 0);
  writer.call(ops().redistribute, {{2, x}}, {{3, x}});  // 3 shares 2's storage
  writer.call(ops().add, {{last(2), x}, {1, x}}, {{4, x}});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(reuses(), 0);
  writer.call(ops().add, {{0, x}, {last(0), x}}, {{5, x}});  // the same operand twice
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(reuses(), 0);
  writer.call(ops().add, {{last(4), x}, {1, x}}, {{4, x}}).call(ops().read, {{4, x}}, {}, {1, -1});
  writer.call(ops().read, {{3, x}}, {}, {2, -1}).call(ops().read, {{5, x}}, {}, {3, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(reuses(), 1);
  EXPECT_EQ(cluster.read(1, {3}), all(3, [](int64_t) { return 26; }));
  EXPECT_EQ(cluster.read(2, {3}), all(3, [](int64_t) { return 12; }));
  EXPECT_EQ(cluster.read(3, {3}), all(3, [](int64_t) { return 10; }));
}

TEST(SubController, GivesHostDataToEveryDeviceAndFreesIt) {
  Cluster cluster({0, 0, 1});
  const DeviceMesh mesh = init_device_mesh("cpu", {3});
  const TensorMeta* x = meta(mesh, {7}, {Shard(0)});
  cluster.feed(3, {10, 11, 12, 13, 14, 15, 16});
  PieceWriter writer;
  writer.call(ops().from_host, {}, {{0, x}}, {3}).call(ops().read, {{0, x}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {7}), all(7, [](int64_t i) { return 10 + i; }));
  // It was used once and is gone.
  writer.call(ops().from_host, {}, {{1, x}}, {3});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 3u);
  EXPECT_NE(cluster.errors()[0].message.find("host data hasn't arrived"), std::string::npos);
}

TEST(SubController, RefusesHostDataThatIsTooShort) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {3}, {Replicate()});
  cluster.feed(1, {1, 2});
  PieceWriter writer;
  writer.call(ops().from_host, {}, {{0, x}}, {1});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_NE(cluster.errors()[0].message.find("has 16 bytes, needed are 24"), std::string::npos);
}

TEST(SubController, AcknowledgesAFinishedPieceWhileTheNextOneRuns) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {1}, {Replicate()});
  gate().close();
  PieceWriter writer;
  writer.call(ops().fill, {}, {{1, x}}, {1});
  Sequence finished = cluster.send(writer);
  writer.call(ops().wait, {}, {{0, x}});
  Sequence running = cluster.send(writer);
  gate().wait_for_visitor();
  cluster.wait_for(finished);
  EXPECT_FALSE(cluster.acknowledged(0, running));
  gate().open();
  cluster.wait_for(running);
}

TEST(SubController, ANodeWithoutADeviceOfAPieceAcknowledgesItToo) {
  Cluster cluster({0, 1});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {4}).call(ops().read, {{0, x}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.last_ack(1).kernels_run, 0);
  EXPECT_EQ(cluster.read(1, {2}), all(2, [](int64_t) { return 4; }));
}

}  // namespace
}  // namespace dtorch::testing_worker
