// The passes that find values which are there already.
#include <gtest/gtest.h>

#include "tests/controller/pieces.h"

namespace dtorch {
namespace {

std::string after(std::unique_ptr<Pass> pass, const Pieces& pieces, LogicalGraph graph) {
  pass->run(graph, {pieces.table});
  EXPECT_EQ(graph.source_lines.size(), graph.operators.size());
  return pieces.str(graph);
}

TEST(RepeatedOperatorsPass, EqualCallsOnEqualValuesAreComputedOnce) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_add", {0, 1}, {2});
  pieces.add(graph, "test_add", {0, 1}, {3}, {});
  pieces.add(graph, "test_add", {2, 2}, {4}, {Scalar{9}});
  pieces.add(graph, "test_add", {3, 2}, {5}, {Scalar{9}});  // equal, since 3 is 2
  pieces.add(graph, "release", {2, 1}, {});
  pieces.add(graph, "test_effect", {5}, {6});
  EXPECT_EQ(after(make_repeated_operators_pass(), pieces, graph),
            "add(0, 1) -> 2; alias(2) -> 3; add(2, 2) -> 4 #9; alias(4) -> 5; release(2, 1); effect(5) -> 6");
}

TEST(RepeatedOperatorsPass, AllResultsOfACallAreAliasesOfTheFirst) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_pair", {0, 1}, {2, 3});
  pieces.add(graph, "test_pair", {0, 1}, {4, 5});
  EXPECT_EQ(after(make_repeated_operators_pass(), pieces, graph), "pair(0, 1) -> 2 -> 3; alias(2, 3) -> 4 -> 5");
}

TEST(RepeatedOperatorsPass, OtherValuesScalarsOrOperatorsAreComputed) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_add", {0, 1}, {2});
  pieces.add(graph, "test_add", {1, 0}, {3});
  pieces.add(graph, "test_add", {0, 1}, {4}, {Scalar{1}});
  pieces.add(graph, "test_add", {0, 1}, {5}, {Scalar{2}});
  pieces.add(graph, "test_effect", {0}, {6});
  pieces.add(graph, "test_effect", {0}, {7});
  pieces.add(graph, "release", {0}, {});
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "test_add", {0, 1}, {8});  // slot 0 holds another value now
  EXPECT_EQ(after(make_repeated_operators_pass(), pieces, graph), pieces.str(graph));
}

TEST(RepeatedOperatorsPass, AResultThatIsGoneIsComputedAgainAndThenShared) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_add", {0, 1}, {2});
  pieces.add(graph, "release", {2}, {});
  pieces.add(graph, "test_add", {0, 1}, {3});
  pieces.add(graph, "test_add", {0, 1}, {2});
  EXPECT_EQ(after(make_repeated_operators_pass(), pieces, graph),
            "add(0, 1) -> 2; release(2); add(0, 1) -> 3; alias(3) -> 2");
}

TEST(RepeatedOperatorsPass, ARunLeavesNothingForTheNext) {
  Pieces pieces;
  const auto pass = make_repeated_operators_pass();
  for (int i = 0; i < 3; ++i) {
    LogicalGraph graph;
    pieces.add(graph, "test_add", {0, 1}, {2});
    const std::string before = pieces.str(graph);
    pass->run(graph, {pieces.table});
    EXPECT_EQ(pieces.str(graph), before);
  }
}

TEST(RedundantRedistributesPass, GoingBackToWhereItCameFromMovesNothing) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.move(graph, 0, Shard(0), 1, Replicate());
  pieces.move(graph, 1, Replicate(), 2, Shard(0));
  pieces.move(graph, 2, Shard(0), 3, Replicate());
  EXPECT_EQ(after(make_redundant_redistributes_pass(), pieces, graph), "move(0) -> 1; alias(0) -> 2; alias(1) -> 3");
}

TEST(RedundantRedistributesPass, WhatIsGoneOrAnotherTensorIsMoved) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.move(graph, 0, Shard(0), 1, Replicate());
  pieces.add(graph, "release", {0}, {});
  pieces.move(graph, 1, Replicate(), 2, Shard(0));
  pieces.move(graph, 5, Replicate(), 6, Shard(0));
  EXPECT_EQ(after(make_redundant_redistributes_pass(), pieces, graph), pieces.str(graph));
}

TEST(RedundantRedistributesPass, PendingSumsAreMoved) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.move(graph, 0, Partial(), 1, Replicate());
  pieces.move(graph, 1, Replicate(), 2, Partial());
  EXPECT_EQ(after(make_redundant_redistributes_pass(), pieces, graph), pieces.str(graph));
}

TEST(Passes, TheListSaysWhichRun) {
  const auto names = [](const std::vector<std::string>& wanted) {
    std::vector<std::string> result;
    for (const auto& pass : make_passes(wanted)) result.emplace_back(pass->name());
    return result;
  };
  const std::vector<std::string> all(std::begin(kPassNames), std::end(kPassNames));
  EXPECT_EQ(names(all), all);
  EXPECT_EQ(names({"liveness", "dead_operators"}), (std::vector<std::string>{"dead_operators", "liveness"}));
  EXPECT_TRUE(names({}).empty());
}

TEST(Passes, WithoutAnyEverythingIsSentAsItWasRecorded) {
  RuntimeOptions options;
  options.passes.clear();
  FakeCluster cluster(1, {}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId a = graph.make();
  graph.add(a, a);
  graph.add(a, a);
  graph.release({a});
  EXPECT_EQ(failure_of(graph.barrier()), "");
  EXPECT_EQ(names_of(cluster.node(0).pieces()),
            (std::vector<std::string>{"test_make", "test_add", "test_add", "release"}));
}

}  // namespace
}  // namespace dtorch
