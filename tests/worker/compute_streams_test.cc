// Devices with several compute streams, driven by hand: what runs side by side, what waits for what, whose memory is
// taken over, failures, replays, ends.
#include <gtest/gtest.h>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

constexpr int32_t kFanOut = 8;
const DeviceMesh one_device = init_device_mesh("cpu", {1});

std::map<int64_t, int64_t> all(int64_t count, int64_t value) {
  std::map<int64_t, int64_t> values;
  for (int64_t i = 0; i < count; ++i) values[i] = value;
  return values;
}

class ComputeStreams : public ::testing::Test {
 protected:
  void SetUp() override { gate().close(); }
  void TearDown() override { gate().open(); }
  PieceWriter& read(OperandId operand, uint64_t number) {
    return writer.call(ops().read, {{operand, x}}, {}, {static_cast<int64_t>(number), -1});
  }
  void expect(Cluster& cluster, uint64_t number, int64_t value) {
    EXPECT_EQ(cluster.read(number, {3}), all(3, value)) << "read " << number;
  }
  const TensorMeta* const x = meta(one_device, {3}, {Replicate()});
  PieceWriter writer;
};

TEST_F(ComputeStreams, AStreamGoesOnWhileAnotherOneIsBusy) {
  Cluster cluster({0}, kFanOut, 2);
  writer.call(ops().wait, {}, {{0, x}}).on(0);
  read(0, 1).on(0);
  const Sequence busy = cluster.send(writer);
  writer.call(ops().fill, {}, {{1, x}}, {5}).on(1).call(ops().add, {{1, x}, {1, x}}, {{2, x}}).on(1);
  read(2, 2).on(1);
  cluster.wait_for(cluster.send(writer.urgent()));
  expect(cluster, 2, 10);
  EXPECT_FALSE(cluster.acknowledged(0, busy));
  EXPECT_EQ(cluster.num_boxes(1), 0u);
  gate().open();
  cluster.wait_for(busy);
  expect(cluster, 1, 1);
}

TEST_F(ComputeStreams, ACallWaitsForWhatAnotherStreamMakes) {
  Cluster cluster({0}, kFanOut, 2);
  writer.call(ops().fill, {}, {{0, x}}, {20}).on(0).call(ops().wait, {}, {{1, x}}).on(1);
  writer.call(ops().add, {{0, x}, {1, x}}, {{2, x}}).on(0).call(ops().add, {{2, x}, {1, x}}, {{3, x}}).on(1);
  read(2, 1).on(0);
  read(3, 2).on(1);
  const Sequence sent = cluster.send(writer);
  gate().wait_for_visitor();
  gate().open();
  cluster.wait_for(sent);
  expect(cluster, 1, 21);
  expect(cluster, 2, 22);
}

TEST_F(ComputeStreams, MemoryThatAnotherStreamWillReadIsNotTakenOver) {
  Cluster cluster({0}, kFanOut, 3);
  const int before = reuses();
  writer.call(ops().fill, {}, {{0, x}}, {20}).on(0).call(ops().fill, {}, {{4, x}}, {3}).on(0);
  writer.call(ops().wait, {}, {{1, x}}).on(2);
  writer.call(ops().add, {{0, x}, {1, x}}, {{2, x}}).on(1);        // reads 0 when the gate opens
  writer.call(ops().add, {{last(0), x}, {4, x}}, {{3, x}}).on(0);  // at once; the last use
  read(3, 1).on(0);
  read(2, 2).on(1);
  const Sequence sent = cluster.send(writer);
  writer.call(ops().note, {}, {}, {1}).on(0);
  cluster.wait_for(cluster.send(writer.urgent()));
  EXPECT_EQ(reuses(), before) << "taken over while stream 1 hadn't read it";
  gate().open();
  cluster.wait_for(sent);
  expect(cluster, 1, 23);
  expect(cluster, 2, 21);
}

TEST_F(ComputeStreams, MemoryIsTakenOverAlongAChain) {
  Cluster cluster({0}, kFanOut, 2);
  const int before = reuses();
  writer.call(ops().fill, {}, {{0, x}}, {1}).on(1).call(ops().fill, {}, {{1, x}}, {1}).on(1);
  writer.call(ops().add, {{last(0), x}, {1, x}}, {{2, x}}).on(1);
  writer.call(ops().add, {{last(2), x}, {1, x}}, {{3, x}}).on(1);
  read(3, 1).on(1);
  cluster.wait_for(cluster.send(writer));
  expect(cluster, 1, 3);
  EXPECT_EQ(reuses(), before + 2);
}

TEST_F(ComputeStreams, ASlotIsUsedAgainWhileItsOldValueIsAwaited) {
  Cluster cluster({0}, kFanOut, 3);
  writer.call(ops().fill, {}, {{0, x}}, {20}).on(0).call(ops().wait, {}, {{1, x}}).on(2);
  writer.call(ops().add, {{last(0), x}, {last(1), x}}, {{2, x}}).on(1);
  writer.call(ops().fill, {}, {{0, x}}, {7}).on(0).call(ops().add, {{0, x}, {0, x}}, {{1, x}}).on(0);
  read(2, 1).on(1);
  read(1, 2).on(0).release({0, 1, 2});
  const Sequence sent = cluster.send(writer.statistics());
  gate().open();
  cluster.wait_for(sent);
  expect(cluster, 1, 21);
  expect(cluster, 2, 14);
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 0);
}

TEST_F(ComputeStreams, AFailurePoisonsWhatDependsOnItOnAllStreams) {
  Cluster cluster({0}, kFanOut, 2);
  writer.call(ops().fail, {}, {{0, x}}).on(1).call(ops().fill, {}, {{1, x}}, {4}).on(0);
  writer.call(ops().add, {{0, x}, {1, x}}, {{2, x}}).on(0).call(ops().add, {{2, x}, {2, x}}, {{3, x}}).on(1);
  read(3, 1).on(1);
  read(1, 2).on(0);
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_EQ(cluster.errors()[0].op_index, 0u);
  EXPECT_EQ(cluster.num_boxes(1), 0u);
  expect(cluster, 2, 4);
}

TEST_F(ComputeStreams, ATransferLeavesFromItsStreamWhileAnotherOneIsBusy) {
  Cluster cluster({0, 1}, kFanOut, 2);
  const DeviceMesh other("cpu", {1}, {1});
  const TensorMeta* y = meta(other, {3}, {Replicate()});
  writer.call(ops().wait, {}, {{0, x}}).on(0);
  const Sequence busy = cluster.send(writer);
  writer.call(ops().fill, {}, {{1, x}}, {5}).on(1).call(ops().redistribute, {{last(1), x}}, {{2, y}}).on(1);
  writer.call(ops().add, {{2, y}, {2, y}}, {{3, y}}).on(0).call(ops().read, {{3, y}}, {}, {1, -1}).on(0);
  const Sequence sent = cluster.send(writer.urgent());
  cluster.wait_for(sent, 1);
  expect(cluster, 1, 10);
  EXPECT_FALSE(cluster.acknowledged(0, busy));
  gate().open();
  cluster.wait_for(busy);
}

TEST_F(ComputeStreams, ReplaysGiveWhatTheyGiveOnOneStream) {
  Cluster cluster({0}, kFanOut, 2);
  writer.call(ops().fill, {}, {{0, x}}, {1}).on(0).call(ops().fill, {}, {{1, x}}, {100}).on(1);
  cluster.send(writer);
  // a' = a + a + number, b' = b + b + a'; the number varies.
  writer.call(ops().fill, {}, {{2, x}}, {0}).on(0).call(ops().add, {{last(0), x}, {0, x}}, {{3, x}}).on(0);
  writer.call(ops().add, {{last(1), x}, {1, x}}, {{4, x}})
      .on(1)
      .call(ops().add, {{last(3), x}, {last(2), x}}, {{5, x}});
  writer.on(0).call(ops().add, {{last(4), x}, {5, x}}, {{6, x}}).on(1);
  cluster.define(writer, 3, 2);
  int64_t a = 1, b = 100;
  OperandId slot_a = 0, slot_b = 1;
  for (int64_t number = 1; number <= 20; ++number) {
    Replay replay;
    replay.graph = writer.graph();
    replay.id = 3;
    replay.end_call = 5;
    replay.ends = true;
    if (number == 1) replay.new_varying = {0};
    replay.scalars = {Scalar::of_int(number)};
    replay.operands = {slot_a, slot_b, slot_b, slot_a};  // live-ins in order of use, then what outlives
    cluster.replay(replay);
    std::swap(slot_a, slot_b);
    a = 2 * a + number;
    b = 2 * b + a;
  }
  read(slot_a, 1).on(1);
  read(slot_b, 2).on(0);
  cluster.wait_for(cluster.send(writer));
  EXPECT_TRUE(cluster.errors().empty());
  expect(cluster, 1, a);
  expect(cluster, 2, b);
}

TEST_F(ComputeStreams, AStreamThatWaitsForATransferEndsWithTheJob) {
  Cluster cluster({0, 1}, kFanOut, 2);
  const DeviceMesh other("cpu", {1}, {1});
  const TensorMeta* y = meta(other, {3}, {Replicate()});
  writer.call(ops().fill, {}, {{0, x}}, {1}).call(ops().redistribute, {{0, x}}, {{1, y}}).on(1);
  writer.call(ops().add, {{1, y}, {1, y}}, {{2, y}}).on(1).call(ops().add, {{2, y}, {2, y}}, {{3, y}}).on(0);
  cluster.send_to(1, writer);  // node 0 never hears of it
  EXPECT_EQ(cluster.end(1), (std::vector<int>{1, 1}));
}

TEST_F(ComputeStreams, AClosedGraphLeavesNothingAndItsNumberServesTheNext) {
  Cluster cluster({0}, kFanOut, 2);
  for (GraphId graph = 10; graph < 14; ++graph) {
    PieceWriter other(graph);
    other.call(ops().fill, {}, {{0, x}}, {graph}).on(1).call(ops().add, {{0, x}, {0, x}}, {{1, x}}).on(0);
    other.call(ops().read, {{1, x}}, {}, {static_cast<int64_t>(graph), -1}).on(0);
    cluster.wait_for(cluster.send(other.closes().statistics()));
    expect(cluster, graph, 2 * graph);
    EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 0);
  }
}

TEST_F(ComputeStreams, ACallOfAStreamThatIsNotThereIsRefused) {
  Cluster cluster({0}, kFanOut, 2);
  writer.call(ops().fill, {}, {{0, x}}, {1}).on(2);
  cluster.send(writer);
  cluster.wait_for_errors(1);
  EXPECT_NE(cluster.errors()[0].message.find("a call is of compute stream 2; there are 2"), std::string::npos);
  EXPECT_EQ(cluster.end(0), std::vector<int>{1});
}

}  // namespace
}  // namespace dtorch::testing_worker
