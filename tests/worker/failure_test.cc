// Errors in flight: what a failing kernel poisons, what is reported, and how a Sub-Controller ends.
#include <gtest/gtest.h>

#include "runtime/graph/snapshot.h"
#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh one_device = init_device_mesh("cpu", {1});
const DeviceMesh two_devices = init_device_mesh("cpu", {2});

TEST(Failure, PoisonsWhatDependsOnItAndNothingElseWithOneReport) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1}).call(ops().fail, {}, {{1, x}});
  writer.call(ops().add, {{0, x}, {1, x}}, {{2, x}}).call(ops().add, {{2, x}, {2, x}}, {{3, x}});
  writer.call(ops().read, {{3, x}}, {}, {1, -1}).call(ops().read, {{0, x}}, {}, {2, -1});
  Sequence sequence = cluster.send(writer);
  cluster.wait_for(sequence);
  ASSERT_EQ(cluster.errors().size(), 1u);
  const ErrorReport& report = cluster.errors()[0];
  EXPECT_EQ(report.message, "boom");
  EXPECT_EQ(report.sequence, sequence);
  EXPECT_EQ(report.op_index, 1u);
  EXPECT_EQ(report.device, 0);
  EXPECT_EQ(report.node, 0);
  EXPECT_EQ(cluster.num_boxes(1), 0u);
  EXPECT_EQ(cluster.read(2, {2}), (std::map<int64_t, int64_t>{{0, 1}, {1, 1}}));
  EXPECT_EQ(cluster.last_ack(0).kernels_run, 1);
  // The slot of a poisoned value is as good as new.
  writer.call(ops().fill, {}, {{3, x}}, {8}).call(ops().read, {{3, x}}, {}, {3, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(3, {2}), (std::map<int64_t, int64_t>{{0, 8}, {1, 8}}));
}

TEST(Failure, ASnapshotThatDoesNotFitTheJobIsReported) {
  const auto message_for = [](OperandId slot, std::vector<int32_t> buddies) {
    Cluster cluster({0, 1});
    SnapshotOrder order{.snapshot = 1, .action = SnapshotAction::kStore};
    order.values = {{7, slot, meta(two_devices, {2}, {Shard(0)}), false}};
    order.places = {{0, 1}, std::move(buddies)};
    cluster.controller().send(0, PieceEncoder().encode(order));
    cluster.wait_for_errors(1);
    EXPECT_EQ(cluster.errors()[0].device, -1);
    return cluster.errors()[0].message;
  };
  EXPECT_EQ(message_for(0, {1, 0, kNoBuddy}), "a snapshot has places on 3 nodes; there are 2");
  EXPECT_EQ(message_for(kMaxOperand - 1, {1, 0}), "operand number 2147483646 is too large");
}

TEST(Failure, AKernelThatDoesNotKeepItsMetadataIsReportedWithBoth) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().wrong_shape, {}, {{0, x}}).call(ops().unset, {}, {{1, x}});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 2u);
  EXPECT_NE(cluster.errors()[0].message.find("int64 [3], inferred was int64 [2]"), std::string::npos);
  EXPECT_NE(cluster.errors()[1].message.find("inferred was int64 [2]"), std::string::npos);
}

TEST(Failure, AMovedValueOfOtherMetadataThanInferredIsReported) {
  Cluster cluster({0, 1});
  const DeviceMesh first("cpu", {1}, {0}), second("cpu", {1}, {1});
  const TensorMeta *x = meta(first, {2}, {Replicate()}), *longer = meta(first, {3}, {Replicate()});
  const TensorMeta *y = meta(second, {2}, {Replicate()}), *longer_y = meta(second, {3}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1});
  writer.call(ops().redistribute, {{0, longer}}, {{1, longer}});  // stays where it is
  writer.call(ops().redistribute, {{0, x}}, {{2, y}}).call(ops().add, {{2, longer_y}, {2, longer_y}}, {{3, longer_y}});
  cluster.wait_for(cluster.send(writer));
  cluster.wait_for_errors(2);
  std::string messages = cluster.errors()[0].message + "\n" + cluster.errors()[1].message;
  EXPECT_NE(messages.find("output 0 is int64 [2], inferred was int64 [3]"), std::string::npos) << messages;
  EXPECT_NE(messages.find("input 0 arrived as int64 [2], inferred was int64 [3]"), std::string::npos) << messages;
}

TEST(Failure, APieceThatHoldsACompositionIsRefusedByName) {
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().composition, {}, {{0, meta(one_device, {2}, {Replicate()})}});
  cluster.send(writer);
  cluster.wait_for_errors(1);
  EXPECT_NE(cluster.errors()[0].message.find("'test.composition' is a composition of other operators"),
            std::string::npos)
      << cluster.errors()[0].message;
  EXPECT_EQ(cluster.end(0), std::vector<int>{1});
}

TEST(Failure, AValueThatWasNeverMadeIsReported) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().add, {{5, x}, {5, x}}, {{6, x}});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_NE(cluster.errors()[0].message.find("operand 5 has no value on device 0"), std::string::npos);
}

TEST(Failure, TravelsThroughTransfersWithoutASecondReport) {
  Cluster cluster({0, 1});
  const DeviceMesh first("cpu", {1}, {0}), second("cpu", {1}, {1});
  const TensorMeta* x = meta(first, {2}, {Replicate()});
  const TensorMeta* y = meta(second, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fail, {}, {{0, x}}).call(ops().redistribute, {{last(0), x}}, {{1, y}});
  writer.call(ops().add, {{1, y}, {1, y}}, {{2, y}}).call(ops().read, {{2, y}}, {}, {1, -1});
  writer.call(ops().fill, {}, {{3, y}}, {1}).call(ops().read, {{3, y}}, {}, {2, -1});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_EQ(cluster.errors()[0].node, 0);
  EXPECT_EQ(cluster.num_boxes(1), 0u);
  EXPECT_EQ(cluster.num_boxes(2), 1u);
  EXPECT_EQ(cluster.end(0), (std::vector<int>{0, 0}));
}

TEST(Failure, ADamagedPieceIsReportedAndTheNodeStillEnds) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  auto junk = std::make_shared<Bytes>(100, std::byte{0x5A});
  cluster.controller().send(0, Message{MessageKind::kPiece, junk, nullptr});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1});
  cluster.send(writer);
  cluster.wait_for_errors(1);
  EXPECT_EQ(cluster.errors()[0].device, -1);
  EXPECT_EQ(cluster.end(0), std::vector<int>{1});
}

TEST(Failure, ADamagedShutdownEndsTheNodeToo) {
  auto junk = std::make_shared<Bytes>(10, std::byte{0x5A});
  Cluster cluster({0});
  cluster.controller().send(0, Message{MessageKind::kShutdown, junk, nullptr});
  EXPECT_EQ(cluster.end(0), std::vector<int>{1});
}

TEST(Shutdown, AnOrderlyEndRunsWhatIsUnderWay) {
  Cluster cluster({0, 0});
  const TensorMeta* x = meta(two_devices, {2}, {Shard(0)});
  gate().close();
  PieceWriter writer;
  writer.call(ops().wait, {}, {{0, x}}).call(ops().read, {{0, x}}, {}, {1, -1});
  Sequence sequence = cluster.send(writer);
  gate().wait_for_visitor();
  std::thread opener([] { gate().open(); });
  EXPECT_EQ(cluster.end(0), std::vector<int>{0});
  opener.join();
  EXPECT_EQ(cluster.num_boxes(1), 2u);
  EXPECT_TRUE(cluster.acknowledged(0, sequence));
}

TEST(Shutdown, AnEndAfterAnErrorDoesNotWaitForAPeerThatIsSilent) {
  Cluster cluster({0, 1});
  const DeviceMesh first("cpu", {1}, {0}), second("cpu", {1}, {1});
  const TensorMeta* x = meta(first, {2}, {Replicate()});
  const TensorMeta* y = meta(second, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x}}, {1}).call(ops().redistribute, {{0, x}}, {{1, y}});
  writer.call(ops().add, {{1, y}, {1, y}}, {{2, y}}).call(ops().read, {{2, y}}, {}, {1, -1});
  cluster.send_to(1, writer);  // node 0 never hears of it
  EXPECT_EQ(cluster.end(3), (std::vector<int>{3, 3}));
  EXPECT_EQ(cluster.num_boxes(1), 0u);
  EXPECT_TRUE(cluster.errors().empty());
}

}  // namespace
}  // namespace dtorch::testing_worker
