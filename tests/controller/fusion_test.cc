// The pass that marks runs of elementwise operators, on small pieces and through templates.
#include <gtest/gtest.h>

#include "tests/controller/fake_cluster.h"
#include "tests/controller/pieces.h"

namespace dtorch {
namespace {

std::string fused(Pieces& pieces, LogicalGraph& graph) {
  make_fusion_pass()->run(graph, {pieces.table});
  return pieces.str(graph);
}

TEST(FusionPass, AChainIsOneRun) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.add(graph, "test_scale", {1 | kLastUse}, {2});
  pieces.add(graph, "test_scale", {2 | kLastUse}, {1});  // a slot again
  pieces.add(graph, "test_effect", {1}, {});
  EXPECT_EQ(fused(pieces, graph), "make() -> 0; scale(0) -> 1 &; scale(1!) -> 2 &; scale(2!) -> 1; effect(1)");
  EXPECT_EQ(graph.source_lines[2].line, 3u) << "every call keeps its line";
}

TEST(FusionPass, CallsThatShareNothingAreLeftAlone) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.add(graph, "test_scale", {0}, {2});
  pieces.add(graph, "test_scale", {0 | kLastUse}, {0});
  EXPECT_EQ(fused(pieces, graph), "scale(0) -> 1; scale(0) -> 2; scale(0!) -> 0");
}

TEST(FusionPass, ASlotThatIsUsedAgainIsAnotherValue) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.add(graph, "test_scale", {1 | kLastUse}, {2});
  pieces.add(graph, "test_scale", {0}, {3});
  pieces.add(graph, "test_scale", {1}, {4});  // not what the first has made, which is gone
  EXPECT_EQ(fused(pieces, graph), "scale(0) -> 1 &; scale(1!) -> 2; scale(0) -> 3; scale(1) -> 4");
}

TEST(FusionPass, ARunReachesFromTheFirstMakerToTheLastUser) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_scale", {0}, {1});  // belongs to nothing
  pieces.add(graph, "test_scale", {0}, {2});
  pieces.add(graph, "test_scale", {0}, {3});  // in between
  pieces.add(graph, "test_scale", {2}, {4});
  pieces.add(graph, "test_scale", {3}, {5});
  pieces.add(graph, "test_scale", {0}, {6});  // belongs to nothing
  EXPECT_EQ(fused(pieces, graph),
            "scale(0) -> 1; scale(0) -> 2 &; scale(0) -> 3 &; scale(2) -> 4 &; scale(3) -> 5; scale(0) -> 6");
}

TEST(FusionPass, OtherOperatorsAndReleasesEndARun) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.add(graph, "test_add", {1, 1}, {2});  // isn't elementwise
  pieces.add(graph, "test_scale", {2}, {3});
  pieces.add(graph, "release", {0}, {});
  pieces.add(graph, "test_scale", {3}, {4});
  EXPECT_EQ(fused(pieces, graph), "scale(0) -> 1; add(1, 1) -> 2; scale(2) -> 3; release(0); scale(3) -> 4");
}

TEST(FusionPass, ShapesMustBeTheSameAndInputsAsLargeOrOneElement) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.scale(graph, 0, {8}, 1, {8});
  pieces.scale(graph, 1, {8}, 2, {2, 8});  // broadcasts rows
  pieces.scale(graph, 2, {2, 8}, 3, {2, 8});
  pieces.scale(graph, 3, {2, 8}, 4, {2, 8});
  pieces.scale(graph, 4, {1}, 5, {2, 8});
  pieces.scale(graph, 5, {8}, 6, {8});
  EXPECT_EQ(fused(pieces, graph),
            "scale(0) -> 1; scale(1) -> 2; scale(2) -> 3 &; scale(3) -> 4 &; scale(4) -> 5; scale(5) -> 6");
}

TEST(FusionPass, LongChainsAreSeveralRuns) {
  Pieces pieces;
  LogicalGraph graph;
  for (OperandId slot = 0; slot < 100; ++slot) pieces.add(graph, "test_scale", {slot | kLastUse}, {slot + 1});
  fused(pieces, graph);
  EXPECT_EQ(fused_run_length(graph.operators, 0), 64u);
  EXPECT_EQ(fused_run_length(graph.operators, 64), 36u);
}

TEST(FusionPass, TheGraphAsTextShowsRuns) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.add(graph, "test_scale", {1 | kLastUse}, {2});
  pieces.add(graph, "test_make", {}, {3});
  fused(pieces, graph);
  const std::string text = graph_text(graph, pieces.table, block_binding(2, 1));
  EXPECT_EQ(text.find("  fused, 2 operators:\n    %1 = test_scale(%0)"), 0u) << text;
  EXPECT_NE(text.find("\n    %2 = test_scale(%1!)"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  %3 = test_make()"), std::string::npos) << text;
}

// --- templates

struct FusedLoop {
  explicit FusedLoop(FakeNode::Behaviour behaviour = {})
      : cluster(1, std::move(behaviour), options()), graph(*cluster.controller, 1, cluster.mesh) {
    y = graph.make();
  }
  static RuntimeOptions options() {
    RuntimeOptions result;
    result.passes = {"liveness", "fusion"};
    return result;
  }
  // y = scale(scale(y)): each old value is released with the next call.
  void step() {
    for (int i = 0; i < 2; ++i) {
      const OperandId next = graph.call("test_scale", {y}, 1, old)[0];
      old = {y};
      y = next;
    }
  }
  FakeCluster cluster;
  TestGraph graph;
  OperandId y = 0;
  std::vector<OperandId> old;
};

TEST(FusionInTemplates, ADefinitionHoldsItsRunsAndAReplayWholeOnes) {
  FusedLoop loop;
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < 10; ++i) loop.step();
    loop.graph.flush();
    ASSERT_EQ(failure_of(loop.graph.barrier()), "");
  }
  const std::vector<TemplateDefinition> templates = loop.cluster.node(0).templates();
  ASSERT_FALSE(templates.empty());
  const std::vector<Operator>& calls = templates.back().body->calls().operators;
  size_t num_fused = 0;
  for (const Operator& op : calls) num_fused += is_fused_with_next(op) ? 1 : 0;
  EXPECT_GE(num_fused, 15u) << "of " << calls.size();
  const std::vector<Replay> replays = loop.cluster.node(0).replays();
  ASSERT_FALSE(replays.empty());
  for (const Replay& replay : replays) {
    EXPECT_TRUE(replay.end_call == 0 || !is_fused_with_next(replay.body->calls().operators[replay.end_call - 1]));
  }
}

TEST(FusionInTemplates, AFailureNamesTheMembersLine) {
  FusedLoop loop({.fails = {{"test_scale", "boom"}}});
  const OperandId a = loop.graph.call("test_scale", {loop.y}, 41)[0];
  const OperandId b = loop.graph.call("test_scale", {a}, 42, {})[0];
  const std::string failure = failure_of(loop.graph.read(b, 43));
  EXPECT_NE(failure.find("[test_scale] failed on node 0"), std::string::npos) << failure;
  EXPECT_NE(failure.find("user.cc:41"), std::string::npos) << failure;
}

}  // namespace
}  // namespace dtorch
