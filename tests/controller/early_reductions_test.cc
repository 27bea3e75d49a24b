// The pass that moves reductions up to what makes their inputs, on small pieces; template_test.cc has it in instances
// that break.
#include <gtest/gtest.h>

#include "tests/controller/fake_cluster.h"
#include "tests/controller/pieces.h"

namespace dtorch {
namespace {

std::string moved(Pieces& pieces, LogicalGraph& graph) {
  make_early_reductions_pass()->run(graph, {pieces.table});
  return pieces.str(graph);
}

TEST(EarlyReductionsPass, AReductionFollowsWhatMakesItsInput) {
  Pieces pieces;
  LogicalGraph graph;
  for (OperandId i = 0; i < 3; ++i) pieces.add(graph, "test_make", {}, {i}, {Scalar{i}});
  for (OperandId i = 0; i < 3; ++i) pieces.move(graph, i, Partial(), 10 + i, Replicate());
  pieces.add(graph, "test_add", {10, 11}, {12});
  EXPECT_EQ(moved(pieces, graph),
            "make() -> 0 #0; move(0) -> 10; make() -> 1 #1; move(1) -> 11; make() -> 2 #2; move(2) -> 12; "
            "add(10, 11) -> 12");
  EXPECT_EQ(graph.source_lines[1].line, 4u) << "every call keeps its line";
  EXPECT_EQ(graph.scalars.size(), 3u);
}

TEST(EarlyReductionsPass, WhatWasThereBeforeIsReducedFirst) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.move(graph, 5, Partial(), 6, Shard(0));
  EXPECT_EQ(moved(pieces, graph), "move(5) -> 6; make() -> 0");
}

TEST(EarlyReductionsPass, GathersStay) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "test_make", {}, {1});
  pieces.move(graph, 0, Shard(0), 2, Replicate());
  const std::string before = pieces.str(graph);
  EXPECT_EQ(moved(pieces, graph), before);
}

TEST(EarlyReductionsPass, ASlotIsFreeBeforeTheResultGetsIt) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "test_add", {3, 3}, {1});
  pieces.add(graph, "release", {3}, {});
  pieces.add(graph, "test_make", {}, {2});
  pieces.move(graph, 0, Partial(), 3, Replicate());
  EXPECT_EQ(moved(pieces, graph), "make() -> 0; add(3, 3) -> 1; release(3); move(0) -> 3; make() -> 2");
}

TEST(EarlyReductionsPass, ASlotThatIsWrittenAgainIsAnotherValue) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0}, {Scalar{1}});
  pieces.add(graph, "release", {0}, {});
  pieces.add(graph, "test_make", {}, {0}, {Scalar{2}});
  pieces.add(graph, "test_make", {}, {1}, {Scalar{3}});
  pieces.move(graph, 0, Partial(), 2, Replicate());
  EXPECT_EQ(moved(pieces, graph), "make() -> 0 #1; release(0); make() -> 0 #2; move(0) -> 2; make() -> 1 #3");
}

TEST(EarlyReductionsPass, AReductionOfAReductionComesBehindIt) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "test_make", {}, {1});
  pieces.move(graph, 0, Partial(), 2, Replicate());
  pieces.move(graph, 0, Partial(), 3, Shard(0));
  pieces.add(graph, "test_make", {}, {4});
  pieces.move(graph, 2, Partial(), 5, Replicate());
  EXPECT_EQ(moved(pieces, graph), "make() -> 0; move(0) -> 2; move(0) -> 3; move(2) -> 5; make() -> 1; make() -> 4");
}

TEST(EarlyReductionsPass, LastUsesAreFoundInTheNewOrder) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.move(graph, 0, Partial(), 2, Replicate());
  pieces.add(graph, "release", {0}, {});
  make_early_reductions_pass()->run(graph, {pieces.table});
  make_liveness_pass()->run(graph, {pieces.table});
  EXPECT_EQ(pieces.str(graph), "make() -> 0; move(0) -> 2; scale(0!) -> 1");
}

}  // namespace
}  // namespace dtorch
