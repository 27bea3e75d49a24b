// Transfers that are put together: the same values and failures as one by one, in fewer messages; in pieces and
// replays.
#include <gtest/gtest.h>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

constexpr OperandId kTransfers = 5;

class Buckets : public ::testing::Test {
 protected:
  // What each device has of the value: a different number a transfer and a device.
  void make_parts(PieceWriter& writer) {
    for (OperandId i = 0; i < kTransfers; ++i)
      writer.call(ops().iota, {}, {{i, part(i)}}).call(ops().add, {{i, part(i)}, {i, part(i)}}, {{10 + i, part(i)}});
  }
  const TensorMeta* part(OperandId i) const { return meta(mesh, {3 + i, 4}, {Partial()}); }
  const TensorMeta* whole(OperandId i) const {
    return meta(mesh, {3 + i, 4}, {i % 2 == 0 ? Placement(Replicate()) : Placement(Shard(0))});
  }
  void reduce(PieceWriter& writer, bool together) {
    for (OperandId i = 0; i < kTransfers; ++i) {
      writer.call(ops().redistribute, {{10 + i, part(i)}}, {{20 + i, whole(i)}});
      if (i < 2) writer.call(ops().fill, {}, {{40 + i, part(i)}}, {1});  // between them
    }
    if (together) writer.together(kTransfers + 2);
  }
  std::vector<std::map<int64_t, int64_t>> read(Cluster& cluster, PieceWriter& writer) {
    for (OperandId i = 0; i < kTransfers; ++i)
      writer.call(ops().read, {{20 + i, whole(i)}}, {}, {100 + static_cast<int64_t>(i), -1});
    cluster.wait_for(cluster.send(writer));
    std::vector<std::map<int64_t, int64_t>> values;
    for (OperandId i = 0; i < kTransfers; ++i) values.push_back(cluster.read(100 + i, {3 + i, 4}));
    return values;
  }
  // messages: of node 0, for the reductions.
  std::vector<std::map<int64_t, int64_t>> run(bool together, int64_t& messages) {
    Cluster cluster({0, 1, 1});
    PieceWriter writer;
    make_parts(writer);
    cluster.wait_for(cluster.send(writer));
    const int64_t before = cluster.messages_sent(0);
    reduce(writer, together);
    cluster.wait_for(cluster.send(writer));
    messages = cluster.messages_sent(0) - before;
    return read(cluster, writer);
  }
  const DeviceMesh mesh = init_device_mesh("cpu", {3});
};

TEST_F(Buckets, GiveTheSameValuesInFewerMessages) {
  int64_t one_by_one = 0, together = 0;
  const auto expected = run(false, one_by_one);
  EXPECT_EQ(expected[0].at(5), 3 * 10) << "three devices, each twice the number";
  EXPECT_EQ(run(true, together), expected);
  EXPECT_GE(one_by_one, static_cast<int64_t>(kTransfers));
  EXPECT_LE(together * 2, one_by_one);
}

TEST_F(Buckets, AFailureIsOnlyItsTransfers) {
  Cluster cluster({0, 1, 1});
  PieceWriter writer;
  make_parts(writer);
  writer.call(ops().fail, {}, {{12, part(2)}});
  reduce(writer, true);
  const auto values = read(cluster, writer);
  ASSERT_EQ(cluster.errors().size(), 3u) << "one a device";
  for (const ErrorReport& error : cluster.errors()) EXPECT_NE(error.message.find("boom"), std::string::npos);
  for (OperandId i = 0; i < kTransfers; ++i)
    EXPECT_EQ(values[i].size(), i == 2 ? 0u : static_cast<size_t>((3 + i) * 4)) << "transfer " << i;
}

TEST_F(Buckets, TravelInReplays) {
  Cluster cluster({0, 1, 1});
  PieceWriter writer;
  make_parts(writer);
  cluster.wait_for(cluster.send(writer));
  // Names: sources are live-ins 0 .. 4, results 5 .. 9.
  for (OperandId i = 0; i < kTransfers; ++i)
    writer.call(ops().redistribute, {{i, part(i)}}, {{kTransfers + i, whole(i)}});
  writer.together(kTransfers);
  cluster.define(writer, 3, kTransfers);
  Replay replay;
  replay.graph = writer.graph();
  replay.id = 3;
  replay.end_call = kTransfers;
  replay.ends = true;
  for (OperandId i = 0; i < kTransfers; ++i) {
    replay.operands.push_back(10 + i);
    replay.operands.push_back(20 + i);
  }
  replay.first_transfer = 1000;
  const int64_t before = cluster.messages_sent(0);
  cluster.wait_for(cluster.replay(replay));
  const int64_t messages = cluster.messages_sent(0) - before;
  int64_t one_by_one = 0;
  const auto expected = run(false, one_by_one);
  EXPECT_EQ(read(cluster, writer), expected);
  EXPECT_LE(messages * 2, one_by_one);
}

TEST_F(Buckets, ReplayThatCutsOneIsRefused) {
  Cluster cluster({0, 1, 1});
  PieceWriter writer;
  for (OperandId i = 0; i < 2; ++i) writer.call(ops().redistribute, {{i, part(i)}}, {{2 + i, whole(i)}});
  writer.together(2);
  cluster.define(writer, 3, 2);
  Replay replay;
  replay.graph = writer.graph();
  replay.id = 3;
  replay.end_call = 1;
  replay.operands = {10, 20};
  cluster.replay(replay);
  cluster.wait_for_errors(1);
  EXPECT_NE(cluster.errors()[0].message.find("it cuts a bucket"), std::string::npos) << cluster.errors()[0].message;
}

}  // namespace
}  // namespace dtorch::testing_worker
