// Which compute stream the controller gives a call, on small pieces.
#include <gtest/gtest.h>

#include "runtime/graph/compute_streams.h"
#include "tests/controller/fake_cluster.h"
#include "tests/controller/pieces.h"

namespace dtorch {
namespace {

// The streams of all calls: "0 1 0".
std::string streams(Pieces& pieces, LogicalGraph& graph, int32_t num_streams = 2, GraphId of = 0) {
  make_compute_streams_pass(num_streams, of)->finish(graph, {pieces.table});
  std::string text;
  for (const Operator& op : graph.operators) text += (text.empty() ? "" : " ") + std::to_string(stream_of(op));
  return text;
}

TEST(ComputeStreamsPass, ChainsGoToStreamsOfTheirOwnHoweverTheyAreMixed) {
  Pieces pieces;
  LogicalGraph mixed, in_turn;
  for (OperandId i = 0; i < 3; ++i) {
    pieces.add(mixed, "test_scale", {2 * i}, {2 * i + 2});
    pieces.add(mixed, "test_scale", {2 * i + 1}, {2 * i + 3});
  }
  EXPECT_EQ(streams(pieces, mixed), "0 1 0 1 0 1");
  for (OperandId i = 0; i < 3; ++i) pieces.add(in_turn, "test_scale", {i}, {i + 1});
  for (OperandId i = 10; i < 13; ++i) pieces.add(in_turn, "test_scale", {i}, {i + 1});
  EXPECT_EQ(streams(pieces, in_turn), "0 0 0 1 1 1");
}

TEST(ComputeStreamsPass, AChainStaysWhereItIs) {
  Pieces pieces;
  LogicalGraph graph;
  for (OperandId i = 0; i < 5; ++i) pieces.add(graph, "test_scale", {i}, {i + 1});
  EXPECT_EQ(streams(pieces, graph, 4), "0 0 0 0 0");
}

TEST(ComputeStreamsPass, BranchesPartAndMeet) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_make", {}, {0});
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.add(graph, "test_scale", {0}, {2});
  pieces.add(graph, "test_scale", {1}, {3});
  pieces.add(graph, "test_scale", {2}, {4});
  pieces.add(graph, "test_add", {3, 4}, {5});
  const std::string chosen = streams(pieces, graph);
  EXPECT_EQ(chosen.substr(0, 9), "0 0 1 0 1") << chosen;
}

TEST(ComputeStreamsPass, EffectsStayInOrderOnTheFirstStream) {
  Pieces pieces;
  LogicalGraph graph;
  for (OperandId i = 0; i < 4; ++i) pieces.add(graph, "test_effect", {i}, {});
  EXPECT_EQ(streams(pieces, graph, 2, 1), "0 0 0 0");
}

TEST(ComputeStreamsPass, GraphsBeginOnDifferentStreams) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_scale", {0}, {1});
  EXPECT_EQ(streams(pieces, graph, 2, 1), "1");
  EXPECT_EQ(streams(pieces, graph, 2, 2), "0");
}

TEST(ComputeStreamsPass, ARunOfFusedCallsStaysTogether) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.add(graph, "test_scale", {8}, {2});
  pieces.add(graph, "test_scale", {1}, {3});
  make_fusion_pass()->run(graph, {pieces.table});
  EXPECT_EQ(streams(pieces, graph), "0 0 0");
  EXPECT_EQ(pieces.str(graph), "scale(0) -> 1 &; scale(8) -> 2 &; scale(1) -> 3") << "marks stay";
}

TEST(ComputeStreamsPass, ASlotThatIsUsedAgainIsAnotherValue) {
  Pieces pieces;
  LogicalGraph graph;
  pieces.add(graph, "test_scale", {0}, {1});
  pieces.add(graph, "test_scale", {1}, {1});
  pieces.add(graph, "test_make", {}, {1});
  pieces.add(graph, "test_scale", {1}, {2});
  EXPECT_EQ(streams(pieces, graph), "0 0 1 1");
}

TEST(ComputeStreamsPass, TheSameStretchGivesTheSameStreams) {
  Pieces pieces;
  const auto pass = make_compute_streams_pass(3, 0);
  std::vector<uint16_t> first;
  for (int time = 0; time < 3; ++time) {
    LogicalGraph graph;
    for (OperandId i = 0; i < 20; ++i) pieces.add(graph, "test_add", {i, (7 * i) % 5}, {i + 3});
    pass->finish(graph, {pieces.table});
    std::vector<uint16_t> chosen;
    for (const Operator& op : graph.operators) chosen.push_back(stream_of(op));
    if (time == 0) first = chosen;
    EXPECT_EQ(chosen, first);
  }
}

}  // namespace
}  // namespace dtorch
