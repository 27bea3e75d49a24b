// Passes, each on a small piece and through the executor.
#include <gtest/gtest.h>

#include "runtime/graph/compute_streams.h"
#include "tests/controller/fake_cluster.h"
#include "tests/controller/pieces.h"

namespace dtorch {
namespace {

TEST(LivenessPass, ReleaseAfterTheLastReaderBecomesItsLastUse) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_add", {0, 1}, {2});
  pieces.add(graph, "test_add", {2, 0}, {3});
  pieces.add(graph, "release", {0, 2, 7}, {});
  pieces.add(graph, "test_make", {}, {0}, {Scalar{5}});
  make_liveness_pass()->run(graph, {pieces.table});
  EXPECT_EQ(pieces.str(graph), "add(0, 1) -> 2; add(2!, 0!) -> 3; release(7); make() -> 0 #5");
  EXPECT_EQ(graph.source_lines.size(), 4u);
  EXPECT_EQ(graph.source_lines[3].line, 4u);
}

TEST(LivenessPass, OperandReadTwiceByOneOperatorIsMarkedOnce) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_add", {4, 4}, {5});
  pieces.add(graph, "release", {4}, {});
  make_liveness_pass()->run(graph, {pieces.table});
  EXPECT_EQ(pieces.str(graph), "add(4, 4!) -> 5");
}

TEST(LivenessPass, ValueMadeInThePieceAndNeverReadKeepsItsRelease) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_add", {0, 1}, {2});
  pieces.add(graph, "release", {0, 1}, {});
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "release", {0}, {});
  make_liveness_pass()->run(graph, {pieces.table});
  EXPECT_EQ(pieces.str(graph), "add(0!, 1!) -> 2; make() -> 0; release(0)");
}

TEST(DeadOperatorsPass, ChainWhoseResultIsDroppedGoesAway) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0}, {Scalar{1}});
  pieces.add(graph, "test_add", {0, 0}, {1}, {Scalar{2}});
  pieces.add(graph, "test_add", {1, 0}, {2}, {Scalar{3}});
  pieces.add(graph, "release", {1, 2, 9}, {});
  pieces.add(graph, "test_add", {0, 0}, {3}, {Scalar{4}});
  make_dead_operators_pass()->run(graph, {pieces.table});
  EXPECT_EQ(pieces.str(graph), "make() -> 0 #1; release(9); add(0, 0) -> 3 #4");
}

TEST(DeadOperatorsPass, WhatIsUsedOrHasAnEffectStays) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_pair", {8, 8}, {0, 1});  // one of its results lives on
  pieces.add(graph, "test_make", {}, {2});         // used before its release
  pieces.add(graph, "test_effect", {2}, {3});      // does something
  pieces.add(graph, "release", {0, 2, 3}, {});
  const std::string before = pieces.str(graph);
  make_dead_operators_pass()->run(graph, {pieces.table});
  EXPECT_EQ(pieces.str(graph), before);
}

TEST(DeadOperatorsPass, SlotThatIsUsedAgainIsTwoValues) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "release", {0}, {});
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "test_effect", {0}, {});
  make_dead_operators_pass()->run(graph, {pieces.table});
  EXPECT_EQ(pieces.str(graph), "make() -> 0; effect(0)");
}

TEST(PrintPass, ShowsOperandsLayoutsAndLinesAndChangesNothing) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_add", {0, 1}, {2});
  pieces.add(graph, "release", {0, 7}, {});
  make_liveness_pass()->run(graph, {pieces.table});
  const DeviceBinding binding = block_binding(2, 1);
  const std::string meta =
      intern_meta({kTestElements}, kFloat32, Layout::replicated(init_device_mesh("cpu", {2})))->str();
  EXPECT_EQ(graph_text(graph, pieces.table, binding),
            "  %2 = test_add(%0!, %1): " + meta + "   user.cc:1\n  release %7\n");
  set_stream(graph.operators[0], 3);
  EXPECT_EQ(graph_text(graph, pieces.table, binding, true),
            "  %2 = test_add(%0!, %1): " + meta + ", stream 3   user.cc:1\n  release %7\n");
  const std::string before = pieces.str(graph);
  make_print_pass("after the passes", binding)->run(graph, {pieces.table});
  EXPECT_EQ(pieces.str(graph), before);
}

TEST(Passes, DroppedResultsCostNothingOnTheWire) {
  RuntimeOptions options;
  options.templates = false;  // the first operators come twice
  FakeCluster cluster(1, {.acknowledges = false}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  // Pieces in flight hold the next ones back, so that the rest stays together.
  graph.make();
  graph.flush();
  graph.make();
  graph.flush();
  cluster.node(0).wait_operators(2);
  const OperandId a = graph.make();
  const OperandId unused = graph.add(a, a);
  const OperandId b = graph.call("test_add", {a, a}, 1, {unused})[0];
  graph.release({a});
  const IntrusivePtr<ReadState> read = graph.read(b);
  const std::vector<Piece> pieces = cluster.node(0).wait_operators(5);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(names_of(pieces),
            (std::vector<std::string>{"test_make", "test_make", "test_make", "test_add", "test_read"}));
  EXPECT_EQ(pieces[2].graph_part.operands, (std::vector<OperandId>{a, a, a | kLastUse, b, b}));
  cluster.acknowledge_from_now_on();
  EXPECT_EQ(failure_of(read), "");
  graph.close();
}

TEST(Passes, FeedsAreNeverDropped) {
  FakeCluster cluster(1);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId fed = graph.feed(77);
  graph.release({fed});
  EXPECT_EQ(failure_of(graph.barrier()), "");
  EXPECT_EQ(cluster.node(0).feeds(), std::vector<uint64_t>{77});
  EXPECT_EQ(names_of(cluster.node(0).pieces())[0], "test_make");
}

}  // namespace
}  // namespace dtorch
