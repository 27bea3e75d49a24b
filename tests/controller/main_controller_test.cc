// The Main-Controller against nodes that pretend: order, credits, acknowledgements, start and end.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/controller/fake_cluster.h"

namespace dtorch {
namespace {

TEST(MainController, AllNodesGetTheSamePiecesOfTwoGraphsInOneOrder) {
  FakeCluster cluster(3);
  {
    TestGraph first(*cluster.controller, 1, cluster.mesh);
    TestGraph second(*cluster.controller, 2, cluster.mesh);
    std::thread other([&] {
      OperandId x = second.make();
      for (int i = 0; i < 300; ++i) x = second.call("test_move", {x})[0];
      EXPECT_EQ(failure_of(second.read(x)), "");
    });
    OperandId x = first.make();
    for (int i = 0; i < 300; ++i) x = first.call("test_move", {x})[0];
    EXPECT_EQ(failure_of(first.read(x)), "");
    other.join();
  }
  const std::vector<Piece> expected = cluster.node(0).pieces();
  uint64_t next_transfer = 1;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].sequence, i + 1);
    EXPECT_EQ(expected[i].first_transfer, next_transfer);
    for (const Operator& op : expected[i].graph_part.operators)
      next_transfer += op.num_inputs == 1 && op.num_outputs == 1;
  }
  EXPECT_EQ(next_transfer, 601u);
  for (size_t n = 1; n < 3; ++n) {
    const std::vector<Piece> got = cluster.node(n).wait_pieces(expected.size());
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].sequence, expected[i].sequence);
      EXPECT_EQ(got[i].graph, expected[i].graph);
      EXPECT_EQ(got[i].graph_part.operands, expected[i].graph_part.operands);
    }
  }
}

TEST(MainController, ReadGivesTheData) {
  FakeCluster cluster(2);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const IntrusivePtr<ReadState> read = graph.read(graph.add(graph.make(), graph.make()));
  ASSERT_TRUE(read->wait_for(std::chrono::seconds(10)));
  EXPECT_EQ(read->get().to_vector<float>(), std::vector<float>(kTestElements, FakeNode::kReadValue));
  EXPECT_EQ(cluster.controller->stats().reads, 1);
  EXPECT_EQ(cluster.controller->stats().operators, 4);
}

TEST(MainController, ReadWaitsForTheAcknowledgementsOfAllNodes) {
  FakeCluster cluster(2, {.acknowledges = false});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const IntrusivePtr<ReadState> read = graph.read(graph.make());
  cluster.node(0).wait_operators(2);
  cluster.node(1).wait_operators(2);
  EXPECT_TRUE(cluster.node(0).pieces().back().wants_ack_now);
  ASSERT_TRUE(eventually([&] { return read->has_all_data(); }));
  cluster.node(0).acknowledge_all();
  EXPECT_FALSE(read->wait_for(std::chrono::milliseconds(100)));
  cluster.node(1).acknowledge_all();
  EXPECT_EQ(failure_of(read), "");
  cluster.acknowledge_from_now_on();
}

TEST(MainController, CreditsComeBackWithAcknowledgements) {
  RuntimeOptions options;
  options.inflight_operators = 8;
  FakeCluster cluster(1, {.acknowledges = false}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  OperandId x = graph.make();
  for (int i = 0; i < 31; ++i) x = graph.add(x, x);
  const IntrusivePtr<ReadState> read = graph.read(x);
  std::set<Sequence> acknowledged;
  size_t num_acknowledged = 0;
  while (num_acknowledged < 32) {
    // Never more than 8 operators out; the read needs no credit.
    ASSERT_TRUE(eventually([&] { return names_of(cluster.node(0).pieces()).size() > num_acknowledged; }));
    EXPECT_LE(names_of(cluster.node(0).pieces()).size(), num_acknowledged + 9);
    for (const Piece& piece : cluster.node(0).pieces()) {
      if (!acknowledged.insert(piece.sequence).second) continue;
      num_acknowledged += piece.graph_part.operators.size();
      cluster.node(0).acknowledge(piece.sequence);
      break;
    }
  }
  cluster.acknowledge_from_now_on();
  EXPECT_EQ(failure_of(read), "");
}

TEST(MainController, NothingMoreIsSentWhileCreditIsOut) {
  RuntimeOptions options;
  options.inflight_operators = 4;
  FakeCluster cluster(1, {.acknowledges = false}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  OperandId x = graph.make();
  for (int i = 0; i < 11; ++i) x = graph.add(x, x);
  graph.flush();
  ASSERT_EQ(names_of(cluster.node(0).wait_operators(4)).size(), 4u);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // time in which nothing may happen
  EXPECT_EQ(names_of(cluster.node(0).pieces()).size(), 4u);
  cluster.acknowledge_from_now_on();
  graph.close();
  EXPECT_EQ(names_of(cluster.node(0).pieces()).size(), 12u);
}

TEST(MainController, RecordLargerThanTheLimitIsAdmittedWhenNothingIsInFlight) {
  RuntimeOptions options;
  options.inflight_bytes = 64;
  FakeCluster cluster(1, {}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  for (uint64_t number = 1; number <= 3; ++number) graph.feed(number, 1000);
  EXPECT_EQ(failure_of(graph.barrier()), "");
  EXPECT_EQ(cluster.node(0).feeds(), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(MainController, BarrierCompletesWhenEverythingBeforeItIsAcknowledged) {
  FakeCluster cluster(1, {.acknowledges = false});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  graph.make();
  const IntrusivePtr<ReadState> barrier = graph.barrier();
  cluster.node(0).wait_operators(1);
  EXPECT_FALSE(barrier->wait_for(std::chrono::milliseconds(50)));
  cluster.acknowledge_from_now_on();
  EXPECT_EQ(failure_of(barrier), "");
}

TEST(MainController, SubgraphUnderWayIsSentWhenTheNodesWouldIdle) {
  FakeCluster cluster(1);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  graph.make();  // no read, no flush
  EXPECT_EQ(cluster.node(0).wait_operators(1).size(), 1u);
}

TEST(MainController, NodesThatDifferAreNamedAtStart) {
  InProcessFabric fabric(2);
  FakeNode same(fabric, 0, {});
  FakeNode different(fabric, 1, {.registry_hash = 12345});
  MainController controller(fabric.control(kController), 2, {});
  try {
    controller.start();
    FAIL() << "no error";
  } catch (const RuntimeFault& fault) {
    EXPECT_NE(std::string(fault.what()).find("node 1 (host1, process 101) has registered other operators"),
              std::string::npos)
        << fault.what();
  }
}

TEST(MainController, OtherVersionsAreNamedAtStart) {
  InProcessFabric fabric(2);
  FakeNode same(fabric, 0, {});
  FakeNode different(fabric, 1, {.versions = "fake 2"});
  MainController controller(fabric.control(kController), 2, {});
  try {
    controller.start();
    FAIL() << "no error";
  } catch (const RuntimeFault& fault) {
    EXPECT_EQ(std::string(fault.what()),
              "node 1 (host1, process 101) runs fake 2, node 0 (host0, process 100) runs fake 1");
  }
}

TEST(MainController, MissingNodeIsNamedAfterTheDeadline) {
  InProcessFabric fabric(2);
  FakeNode only(fabric, 0, {});
  RuntimeOptions options;
  options.deadline_s = 0.2;
  MainController controller(fabric.control(kController), 2, options);
  try {
    controller.start();
    FAIL() << "no error";
  } catch (const RuntimeFault& fault) {
    EXPECT_EQ(std::string(fault.what()), "node 1 didn't start within the deadline");
  }
}

TEST(MainController, ShutdownIsToldByAllNodes) {
  FakeCluster cluster(3);
  EXPECT_TRUE(cluster.controller->shutdown(0, "done", 10));
}

TEST(MainController, ShutdownWithASilentNodeIsBounded) {
  FakeCluster cluster(2, {.acknowledges = false, .says_goodbye = false});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const IntrusivePtr<ReadState> read = graph.read(graph.make());
  const auto before = std::chrono::steady_clock::now();
  EXPECT_FALSE(cluster.controller->shutdown(1, "enough", 0.2));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
  EXPECT_EQ(failure_of(read), "the job has ended: enough");
}

TEST(MainController, StopRequestIsSeenByTheProgram) {
  FakeCluster cluster(1);
  EXPECT_FALSE(cluster.controller->stop_requested());
  cluster.controller->request_stop();
  EXPECT_FALSE(cluster.controller->stop_seen());
  EXPECT_TRUE(cluster.controller->stop_requested());
  EXPECT_TRUE(cluster.controller->stop_seen());
}

TEST(MainController, DescribesNodesWithTheirDevices) {
  FakeCluster cluster(2);
  const std::string text = cluster.controller->describe_nodes();
  EXPECT_NE(text.find("node 0 (host0, process 100): fake 1, 1 cores, devices [0, 1]"), std::string::npos) << text;
  EXPECT_NE(text.find("node 1 (host1, process 101): fake 1, 1 cores, devices [2, 3]"), std::string::npos) << text;
}

}  // namespace
}  // namespace dtorch
