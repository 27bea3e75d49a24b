// Aliases: one value, or one that is on its way or doesn't exist, under several operands.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh one_device = init_device_mesh("cpu", {1});

std::map<int64_t, int64_t> two_of(int64_t value) { return {{0, value}, {1, value}}; }

TEST(Alias, SharesTheStorageWhichNobodyTakesOverWhileTheOtherLives) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {3}).alias(0, 1).statistics();
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 16);
  const int reused = reuses();
  writer.call(ops().add, {{last(0), x}, {1, x}}, {{2, x}});  // may take over 0, whose storage 1 has as well
  writer.call(ops().read, {{2, x}}, {}, {1, -1}).call(ops().read, {{1, x}}, {}, {2, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(reuses(), reused);
  EXPECT_EQ(cluster.read(1, {2}), two_of(6));
  EXPECT_EQ(cluster.read(2, {2}), two_of(3));
  writer.alias(last(1), 3).release({2}).call(ops().read, {{last(3), x}}, {}, {3, -1}).statistics();
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(3, {2}), two_of(3));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 0);
}

TEST(Alias, OfAValueOnItsWayDoesNotWaitForIt) {
  Cluster cluster({0, 1});
  const DeviceMesh first("cpu", {1}, {0}), second("cpu", {1}, {1});
  const TensorMeta *x = meta(first, {2}, {Replicate()}), *y = meta(second, {2}, {Replicate()});
  gate().close();
  PieceWriter writer;
  writer.call(ops().wait, {}, {{0, x}}).call(ops().redistribute, {{last(0), x}}, {{1, y}});
  writer.alias(1, 2).call(ops().fill, {}, {{3, y}}, {5}).call(ops().note, {{3, y}}, {}, {77});
  const size_t noted = notes().of(1).size();
  cluster.send(writer);
  // Device 1 goes on while the source is still at work.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (notes().of(1).size() == noted && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  ASSERT_EQ(notes().of(1).size(), noted + 1);
  gate().open();
  writer.call(ops().read, {{last(1), y}}, {}, {2, -1}).call(ops().read, {{last(2), y}}, {}, {3, -1}).release({3});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(2, {2}), cluster.read(3, {2}));
  EXPECT_EQ(cluster.num_boxes(2), 1u);
}

TEST(Alias, OfAFailedValueFailsAsThatDoes) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fail, {}, {{0, x}}).alias(last(0), 1).call(ops().add, {{1, x}, {1, x}}, {{2, x}});
  writer.call(ops().read, {{2, x}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_EQ(cluster.errors()[0].message, "boom");
  EXPECT_EQ(cluster.num_boxes(1), 0u);
}

}  // namespace
}  // namespace dtorch::testing_worker
