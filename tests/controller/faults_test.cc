// How failures travel: from a kernel to whoever reads what depends on it, and from a node to everybody.
#include <gtest/gtest.h>

#include "tests/controller/fake_cluster.h"

namespace dtorch {
namespace {

const char kText[] = "[test_pair] failed on node 0 device 0: out of memory; called at user.cc:41";

FakeNode::Behaviour failing_pair() { return {.fails = {{"test_pair", "out of memory"}}}; }

TEST(Faults, FailureReachesTheReadThatDependsOnIt) {
  FakeCluster cluster(2, failing_pair());
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId a = graph.make();
  const std::vector<OperandId> pair = graph.call("test_pair", {a, a}, 41);
  const OperandId c = graph.add(pair[1], a, 42);
  EXPECT_EQ(failure_of(graph.read(c, 43)), kText);
  // What doesn't depend on it is good, and the program goes on.
  EXPECT_EQ(failure_of(graph.read(a)), "");
  EXPECT_EQ(failure_of(graph.read(graph.add(a, a))), "");
}

TEST(Faults, TaintOutlivesThePiece) {
  FakeCluster cluster(1, failing_pair());
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId a = graph.make();
  const std::vector<OperandId> pair = graph.call("test_pair", {a, a}, 41);
  EXPECT_EQ(failure_of(graph.barrier()), "");
  EXPECT_EQ(failure_of(graph.read(a)), "");
  EXPECT_EQ(failure_of(graph.read(pair[0])), kText);
  EXPECT_EQ(failure_of(graph.read(pair[1])), kText);
  EXPECT_EQ(failure_of(graph.read(graph.add(pair[0], a))), kText);
}

TEST(Faults, OtherGraphsDontNotice) {
  FakeCluster cluster(1, failing_pair());
  TestGraph bad(*cluster.controller, 1, cluster.mesh);
  TestGraph good(*cluster.controller, 2, cluster.mesh);
  const OperandId a = bad.make();
  bad.call("test_pair", {a, a}, 41);
  EXPECT_EQ(failure_of(bad.barrier()), "");
  EXPECT_EQ(failure_of(good.read(good.make())), "");
}

TEST(Faults, FailureThatNobodyReadIsKeptForTheClient) {
  FakeCluster cluster(1, failing_pair());
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId a = graph.make();
  const std::vector<OperandId> pair = graph.call("test_pair", {a, a}, 41);
  EXPECT_EQ(failure_of(graph.barrier()), "");
  const auto unread = [&] {
    std::lock_guard lock(graph.link().failure_mutex);
    return graph.link().unread_failure;
  };
  ASSERT_NE(unread(), nullptr);
  EXPECT_THROW(std::rethrow_exception(unread()), RuntimeFault);
  // A read delivers it; then it isn't unread any more.
  EXPECT_EQ(failure_of(graph.read(pair[0])), kText);
  EXPECT_EQ(unread(), nullptr);
}

TEST(Faults, ReleasedSlotIsCleanForItsNextValue) {
  FakeCluster cluster(1, failing_pair());
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId a = graph.make();
  const std::vector<OperandId> pair = graph.call("test_pair", {a, a}, 41);
  EXPECT_EQ(failure_of(graph.barrier()), "");
  graph.release(pair);
  const OperandId c = graph.add(a, a);
  EXPECT_EQ(failure_of(graph.read(c)), "");
}

TEST(Faults, FirstCauseWins) {
  FakeCluster cluster(1, {.fails = {{"test_pair", "out of memory"}, {"test_add", "a consequence"}}});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId a = graph.make();
  const std::vector<OperandId> pair = graph.call("test_pair", {a, a}, 41);
  EXPECT_EQ(failure_of(graph.read(graph.add(pair[0], a))), kText);
  // Nor does the consequence wait to be thrown.
  std::lock_guard lock(graph.link().failure_mutex);
  EXPECT_EQ(graph.link().unread_failure, nullptr);
}

TEST(Faults, FailureOfANodeFailsEverything) {
  FakeCluster cluster(2, {.acknowledges = false});
  TestGraph first(*cluster.controller, 1, cluster.mesh);
  TestGraph second(*cluster.controller, 2, cluster.mesh);
  const IntrusivePtr<ReadState> a = first.read(first.make());
  const IntrusivePtr<ReadState> b = second.read(second.make());
  cluster.node(1).wait_operators(4);
  cluster.node(1).report(-1, 0, 0, "the disk is on fire");
  EXPECT_EQ(failure_of(a), "node 1: the disk is on fire");
  EXPECT_EQ(failure_of(b), "node 1: the disk is on fire");
  EXPECT_TRUE(eventually([&] { return first.link().failed.load() && second.link().failed.load(); }));
  // Also what is recorded afterwards is answered.
  EXPECT_EQ(failure_of(first.read(first.make())), "node 1: the disk is on fire");
  ASSERT_NE(cluster.controller->failure(), nullptr);
  TestGraph late(*cluster.controller, 3, cluster.mesh);
  EXPECT_TRUE(late.link().failed.load());
}

TEST(Faults, ClientThatIsBlockedByCreditWakesUpWhenANodeFails) {
  RuntimeOptions options;
  options.inflight_operators = 1;
  FakeCluster cluster(1, {.acknowledges = false}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  std::thread failing([&] {
    cluster.node(0).wait_operators(1);
    cluster.node(0).report(-1, 0, 0, "gone");
  });
  // More than the ring and the credit take.
  OperandId x = graph.make();
  for (int i = 0; i < 5000; ++i) x = graph.add(x, x);
  EXPECT_EQ(failure_of(graph.read(x)), "node 0: gone");
  failing.join();
}

TEST(Faults, NodeThatStaysSilentFailsEverythingAfterTheDeadline) {
  RuntimeOptions options;
  options.deadline_s = 1;
  FakeCluster cluster(2, {.acknowledges = false}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const IntrusivePtr<ReadState> read = graph.read(graph.make(17));
  cluster.node(0).wait_operators(2);
  cluster.node(0).acknowledge_all();
  const std::string text = failure_of(read);
  EXPECT_NE(text.find("nothing has finished for "), std::string::npos) << text;
  EXPECT_NE(text.find("node 1 doesn't answer; it owes [test_make] called at user.cc:17"), std::string::npos) << text;
}

TEST(Faults, AcknowledgementOfSomethingElseIsAFailureNotACrash) {
  FakeCluster cluster(1, {.acknowledges = false});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const IntrusivePtr<ReadState> read = graph.read(graph.make());
  cluster.node(0).wait_operators(2);
  cluster.node(0).acknowledge(1000);
  EXPECT_EQ(failure_of(read), "node 0: node 0 acknowledges piece 1000, which it doesn't hold");
}

TEST(Faults, ErrorOfAnOperatorThatDoesntExistIsAFailureNotACrash) {
  FakeCluster cluster(1, {.acknowledges = false});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const IntrusivePtr<ReadState> read = graph.read(graph.make());
  cluster.node(0).wait_operators(2);
  cluster.node(0).report(0, cluster.node(0).pieces()[0].sequence, 1000, "x");
  EXPECT_NE(failure_of(read).find("reports an error of operator 1000"), std::string::npos);
}

}  // namespace
}  // namespace dtorch
