// What a node keeps of a Graph that has closed: nothing.
#include <gtest/gtest.h>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh one_device = init_device_mesh("cpu", {1});

TEST(Close, FreesValuesAndGivesTheNextGraphAnEmptyTable) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter first(7), second(8);
  first.call(ops().fill, {}, {{0, x}}, {3});
  cluster.wait_for(cluster.send(first.statistics()));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 16);
  cluster.wait_for(cluster.send(first.closes().statistics()));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 0);
  // Takes the first one's place, where nothing is left.
  second.call(ops().read, {{0, x}}, {}, {1, -1});
  cluster.wait_for(cluster.send(second));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_NE(cluster.errors()[0].message.find("operand 0 has no value"), std::string::npos)
      << cluster.errors()[0].message;
}

TEST(Close, ForgetsItsOperators) {
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer(7);
  writer.call(ops().fill, {}, {{0, x}}, {3});
  cluster.send(writer);
  cluster.wait_for(cluster.send(writer.closes()));
  writer.call(ops().fill, {}, {{0, x}}, {3});  // of a spec that was defined before
  cluster.send(writer);
  cluster.wait_for_errors(1);
  EXPECT_NE(cluster.errors()[0].message.find("undefined spec"), std::string::npos) << cluster.errors()[0].message;
}

}  // namespace
}  // namespace dtorch::testing_worker
