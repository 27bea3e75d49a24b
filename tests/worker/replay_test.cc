// Replays on a Sub-Controller driven by hand: where values come from and go to, scalars, errors, transfers.
#include <gtest/gtest.h>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh one_device = init_device_mesh("cpu", {1});
const DeviceMesh two_devices = init_device_mesh("cpu", {2});

std::map<int64_t, int64_t> all(int64_t count, int64_t value) {
  std::map<int64_t, int64_t> values;
  for (int64_t i = 0; i < count; ++i) values[i] = value;
  return values;
}

Replay whole(PieceWriter& writer, uint32_t num_calls, std::vector<OperandId> operands) {
  Replay replay;
  replay.graph = writer.graph();
  replay.id = 3;
  replay.end_call = num_calls;
  replay.ends = true;
  replay.operands = std::move(operands);
  return replay;
}

// Reads `slot` and checks that all its elements are `value`.
void expect_value(Cluster& cluster, PieceWriter& writer, OperandId slot, const TensorMeta* meta, int64_t value) {
  static int64_t next_read = 1000;
  const int64_t number = next_read++;
  writer.call(ops().read, {{slot, meta}}, {}, {number, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(static_cast<uint64_t>(number), meta->global_shape),
            all(meta->global_shape.num_elements(), value));
}

TEST(Replay, MovesValuesBetweenSlotsAndNames) {
  Cluster cluster({0, 0, 1});
  const DeviceMesh mesh = init_device_mesh("cpu", {3});
  const TensorMeta* x = meta(mesh, {7}, {Shard(0)});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1}).call(ops().fill, {}, {{1, x}}, {10});
  cluster.send(writer);
  // y' = y + b + b; the temporary and the old y die.
  writer.call(ops().add, {{0, x}, {1, x}}, {{2, x}}).call(ops().add, {{last(2), x}, {1, x}}, {{3, x}}).release({0});
  cluster.define(writer, 3, 2);
  // Slots permute from turn to turn.
  cluster.replay(whole(writer, 3, {0, 1, 5}));
  cluster.replay(whole(writer, 3, {5, 1, 0}));
  cluster.wait_for(cluster.replay(whole(writer, 3, {0, 1, 2})));
  EXPECT_TRUE(cluster.errors().empty());
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 2 * 8 * 5) << "y and b on two devices of 3 + 2 elements";
  expect_value(cluster, writer, 2, x, 61);
  expect_value(cluster, writer, 1, x, 10);
}

TEST(Replay, InPartsGivesTheSameAndWhatIsAbandonedComesOut) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {3}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1});
  cluster.send(writer);
  writer.call(ops().add, {{0, x}, {0, x}}, {{1, x}});              // 2
  writer.call(ops().add, {{1, x}, {1, x}}, {{2, x}});              // 4
  writer.call(ops().add, {{last(1), x}, {last(2), x}}, {{3, x}});  // 6
  cluster.define(writer, 3, 1);
  Replay part = whole(writer, 2, {0});
  part.ends = false;
  cluster.replay(part);
  Replay rest = whole(writer, 3, {7});
  rest.first_call = 2;
  cluster.replay(rest);
  expect_value(cluster, writer, 7, x, 6);
  expect_value(cluster, writer, 0, x, 1);
  cluster.replay(part);
  Replay abandon = whole(writer, 2, {8, 9});
  abandon.first_call = 2;
  cluster.replay(abandon);
  expect_value(cluster, writer, 8, x, 2);
  expect_value(cluster, writer, 9, x, 4);
  expect_value(cluster, writer, 0, x, 1);
  writer.release({0, 7, 8, 9});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 0);
  EXPECT_TRUE(cluster.errors().empty());
}

TEST(Replay, TakesTheScalarsThatVary) {
  Cluster cluster({0, 0});
  const TensorMeta* x = meta(two_devices, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {5}).call(ops().fill, {}, {{1, x}}, {6});
  writer.call(ops().add, {{last(0), x}, {last(1), x}}, {{2, x}});
  cluster.define(writer, 3, 0);
  cluster.replay(whole(writer, 3, {0}));
  expect_value(cluster, writer, 0, x, 11);
  Replay replay = whole(writer, 3, {0});
  replay.new_varying = {1};
  replay.scalars = {Scalar::of_int(100)};
  cluster.replay(replay);
  expect_value(cluster, writer, 0, x, 105);
  replay.new_varying = {0};
  replay.scalars = {Scalar::of_int(1000), Scalar::of_int(7)};
  cluster.replay(replay);
  expect_value(cluster, writer, 0, x, 1007);
  // A template that takes the number over begins anew.
  writer.call(ops().fill, {}, {{0, x}}, {3});
  cluster.define(writer, 3, 0);
  cluster.replay(whole(writer, 1, {4}));
  expect_value(cluster, writer, 4, x, 3);
}

TEST(Replay, AnErrorNamesTheCallWithinItsPartAndPoisonsWhatOutlives) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1}).call(ops().fill, {}, {{1, x}}, {2}).call(ops().fail, {}, {{2, x}});
  writer.call(ops().add, {{last(2), x}, {last(1), x}}, {{3, x}});
  cluster.define(writer, 3, 0);
  Replay part = whole(writer, 1, {0});
  part.ends = false;
  cluster.replay(part);
  Replay rest = whole(writer, 4, {1});
  rest.first_call = 1;
  const Sequence sequence = cluster.replay(rest);
  cluster.wait_for(sequence);
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_EQ(cluster.errors()[0].sequence, sequence);
  EXPECT_EQ(cluster.errors()[0].op_index, 1u);
  EXPECT_NE(cluster.errors()[0].message.find("boom"), std::string::npos);
  expect_value(cluster, writer, 0, x, 1);
  writer.call(ops().read, {{1, x}}, {}, {77, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.num_boxes(77), 0u) << "poisoned";
  EXPECT_EQ(cluster.errors().size(), 1u);
}

TEST(Replay, NumbersTransfersAndWaitsForThem) {
  Cluster cluster({0, 1});
  const TensorMeta* x = meta(two_devices, {4}, {Replicate()});
  const TensorMeta* p = meta(two_devices, {4}, {Partial()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, p}}, {1});
  cluster.send(writer);
  writer.call(ops().redistribute, {{0, p}}, {{1, x}}).call(ops().redistribute, {{0, p}}, {{2, x}});
  writer.call(ops().add, {{last(1), x}, {last(2), x}}, {{3, x}});
  cluster.define(writer, 3, 1);
  uint64_t transfer = 0;
  for (int turn = 0; turn < 20; ++turn) {
    Replay part = whole(writer, 1, {0});
    part.ends = false;
    part.first_transfer = transfer++;
    cluster.replay(part);
    Replay rest = whole(writer, 3, {1});
    rest.first_call = 1;
    rest.first_transfer = transfer++;
    cluster.replay(rest);
  }
  expect_value(cluster, writer, 1, x, 4);
  EXPECT_TRUE(cluster.errors().empty());
}

TEST(Replay, UsesTheHostDataOfItsOwnInstance) {
  Cluster cluster({0, 0});
  const TensorMeta* x = meta(two_devices, {2}, {Shard(0)});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1}).call(ops().from_host, {}, {{1, x}}, {40});
  writer.call(ops().add, {{last(0), x}, {last(1), x}}, {{2, x}});
  cluster.define(writer, 3, 0);
  for (int64_t number = 41; number < 45; ++number) {
    cluster.feed(static_cast<uint64_t>(number), {number, number});
    Replay replay = whole(writer, 3, {5});
    if (number == 41) replay.new_varying = {1};
    replay.scalars = {Scalar::of_int(number)};
    cluster.replay(replay);
    expect_value(cluster, writer, 5, x, number + 1);
  }
  EXPECT_TRUE(cluster.errors().empty());
}

TEST(Replay, OneThatDoesNotFitIsReportedAndTheNodeStillEnds) {
  Cluster cluster({0});
  PieceWriter writer;
  cluster.replay(whole(writer, 1, {}));
  cluster.wait_for_errors(1);
  EXPECT_EQ(cluster.errors()[0].device, -1);
  EXPECT_NE(cluster.errors()[0].message.find("no templates"), std::string::npos) << cluster.errors()[0].message;
  EXPECT_EQ(cluster.end(0), std::vector<int>{1});
}

}  // namespace
}  // namespace dtorch::testing_worker
