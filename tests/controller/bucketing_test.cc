// The pass that puts small reductions together, on small pieces; how nodes take them is in tests/worker/bucket_test.cc.
#include <gtest/gtest.h>

#include "tests/controller/fake_cluster.h"
#include "tests/controller/pieces.h"

namespace dtorch {
namespace {

std::string bucketed(Pieces& pieces, LogicalGraph& graph) {
  make_bucketing_pass()->run(graph, {pieces.table});
  return pieces.str(graph);
}

TEST(BucketingPass, SmallReductionsAreOneBucketAlsoWithCallsBetween) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.move(graph, 0, Partial(), 10, Replicate());
  pieces.add(graph, "test_make", {}, {1});
  pieces.move(graph, 1, Partial(), 11, Shard(0));
  pieces.move(graph, 2, Partial(), 12, Replicate());
  pieces.add(graph, "test_add", {10, 11}, {13});
  EXPECT_EQ(bucketed(pieces, graph),
            "make() -> 0; move(0) -> 10 +; make() -> 1 +; move(1) -> 11 +; move(2) -> 12; add(10, 11) -> 13");
}

TEST(BucketingPass, AnUseOfAResultEndsIt) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.move(graph, 0, Partial(), 10, Replicate());
  pieces.move(graph, 1, Partial(), 11, Replicate());
  pieces.add(graph, "test_scale", {10}, {12});
  pieces.move(graph, 2, Partial(), 13, Replicate());
  pieces.move(graph, 12, Partial(), 14, Replicate());
  EXPECT_EQ(bucketed(pieces, graph),
            "move(0) -> 10 +; move(1) -> 11; scale(10) -> 12; move(2) -> 13 +; move(12) -> 14");
}

TEST(BucketingPass, AReductionOfAResultIsNotWithIt) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.move(graph, 0, Partial(), 10, Replicate());
  pieces.move(graph, 10, Partial(), 11, Replicate());
  EXPECT_EQ(bucketed(pieces, graph), "move(0) -> 10; move(10) -> 11");
}

TEST(BucketingPass, AResultsSlotIsNotGivenToAnotherValueWithin) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.move(graph, 0, Partial(), 10, Replicate());
  pieces.add(graph, "release", {10}, {});
  pieces.move(graph, 1, Partial(), 10, Replicate());
  EXPECT_EQ(bucketed(pieces, graph), "move(0) -> 10; release(10); move(1) -> 10");
}

TEST(BucketingPass, OtherTransfersEndIt) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.move(graph, 0, Partial(), 10, Replicate());
  pieces.move(graph, 1, Shard(0), 11, Replicate());
  pieces.move(graph, 2, Partial(), 12, Replicate());
  EXPECT_EQ(bucketed(pieces, graph), "move(0) -> 10; move(1) -> 11; move(2) -> 12");
}

TEST(BucketingPass, WhatIsFarAwayIsNotWaitedFor) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.move(graph, 0, Partial(), 10, Replicate());
  for (size_t i = 0; i + 2 < kPassReach; ++i) pieces.add(graph, "test_make", {}, {2});
  pieces.move(graph, 0, Partial(), 11, Replicate());  // the last one within reach
  pieces.move(graph, 0, Partial(), 12, Replicate());
  pieces.move(graph, 0, Partial(), 13, Replicate());
  make_bucketing_pass()->run(graph, {pieces.table});
  for (size_t i = 0; i < graph.operators.size(); ++i)
    EXPECT_EQ(is_sent_with_next(graph.operators[i]), i + 1 < kPassReach || i == kPassReach) << i;
}

TEST(BucketingPass, ItHasAnEnd) {
  Pieces pieces;
  LogicalGraph graph;
  for (OperandId i = 0; i < 70; ++i) pieces.move(graph, i, Partial(), 100 + i, Replicate());
  make_bucketing_pass()->run(graph, {pieces.table});
  for (size_t i = 0; i < 70; ++i) EXPECT_EQ(is_sent_with_next(graph.operators[i]), i != 63 && i != 69) << i;
}

}  // namespace
}  // namespace dtorch
