// Templates: what follows from their calls, and definitions and replays over the wire.
#include "runtime/graph/templates.h"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/graph/fused_runs.h"
#include "tests/graph/samples.h"

namespace dtorch {
namespace {

using namespace testing_graph;

std::vector<OperandId> list(std::span<const OperandId> names) { return {names.begin(), names.end()}; }

TEST(TemplateBody, SaysWhichValuesHaveSlotsAndWhichLive) {
  const std::shared_ptr<const TemplateBody> body = sample_template().body;
  EXPECT_EQ(body->num_calls(), 7u);
  EXPECT_EQ(body->num_names(), 8u);
  EXPECT_EQ(list(body->externals(0, 7)), (std::vector<OperandId>{0, 1, 4, 7}));
  EXPECT_EQ(list(body->externals(0, 2)), std::vector<OperandId>{0});
  EXPECT_EQ(list(body->externals(2, 3)), (std::vector<OperandId>{1, 4}));
  EXPECT_EQ(body->temporaries_alive(0), std::vector<OperandId>{});
  EXPECT_EQ(body->temporaries_alive(4), (std::vector<OperandId>{2, 3, 5}));
  EXPECT_EQ(body->temporaries_alive(5), (std::vector<OperandId>{3, 6}));
  EXPECT_EQ(body->temporaries_alive(7), std::vector<OperandId>{});
  EXPECT_FALSE(body->alive_before(0, 1)) << "released by the first call";
  EXPECT_TRUE(body->alive_before(1, 7));
  EXPECT_EQ(body->scalars_before(0), 0u);
  EXPECT_EQ(body->scalars_before(2), 2u);
  EXPECT_EQ(body->scalars_before(7), 3u);
}

TEST(TemplateBody, CallsThatMakeNoSenseAreRefused) {
  const auto refused = [](uint32_t num_live_ins, const std::function<void(LogicalGraph&)>& change) {
    LogicalGraph calls = sample_template().body->calls();
    change(calls);
    EXPECT_THROW(TemplateBody(std::move(calls), num_live_ins), DecodeError);
  };
  refused(1, [](LogicalGraph&) {});                                 // 1 isn't born
  refused(3, [](LogicalGraph&) {});                                 // 2 is a live-in that a call makes
  refused(2, [](LogicalGraph& calls) { calls.operands[1] = 3; });   // 3 is made twice, 2 never
  refused(2, [](LogicalGraph& calls) { calls.operands[3] = 0; });   // used after its release
  refused(2, [](LogicalGraph& calls) { calls.operands[6] = 99; });  // names have a gap
  refused(0xFFFFFFFFu, [](LogicalGraph&) {});
}

TEST(TemplateWire, ADefinitionArrivesAsItWasSent) {
  PieceEncoder encoder;
  PieceDecoder decoder(kNumOps, kNumDevices);
  const TemplateDefinition sent = sample_template();
  const TemplateDefinition received = decoder.decode_template(encoder.encode(sent));
  EXPECT_EQ(received.epoch, sent.epoch);
  EXPECT_EQ(received.graph, sent.graph);
  EXPECT_EQ(received.id, sent.id);
  ASSERT_EQ(received.new_specs.size(), sent.new_specs.size());
  Piece a, b;
  a.new_specs = sent.new_specs;
  a.graph_part = sent.body->calls();
  b.new_specs = received.new_specs;
  b.graph_part = received.body->calls();
  EXPECT_EQ(difference(a, b), "");
  EXPECT_EQ(received.body->num_live_ins(), 2u);
}

class Replays : public ::testing::Test {
 protected:
  void SetUp() override { decoder_.decode_template(encoder_.encode(sample_template())); }
  Replay send(const Replay& replay) { return decoder_.decode_replay(encode(replay)); }
  void refused(const std::function<void(Replay&)>& change, const std::string& reason) {
    Replay replay = sample_replay(false);
    change(replay);
    try {
      send(replay);
      ADD_FAILURE() << "accepted; expected: " << reason;
    } catch (const DecodeError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
  PieceEncoder encoder_;
  PieceDecoder decoder_{kNumOps, kNumDevices};
};

TEST_F(Replays, ArriveAsTheyWereSent) {
  for (bool varies : {false, true}) {
    const Replay sent = sample_replay(varies);
    const Replay received = send(sent);
    EXPECT_EQ(received.epoch, sent.epoch);
    EXPECT_EQ(received.sequence, sent.sequence);
    EXPECT_EQ(received.graph, sent.graph);
    EXPECT_EQ(received.first_transfer, sent.first_transfer);
    EXPECT_EQ(received.id, sent.id);
    EXPECT_EQ(received.first_call, sent.first_call);
    EXPECT_EQ(received.end_call, sent.end_call);
    EXPECT_EQ(received.wants_ack_now, sent.wants_ack_now);
    EXPECT_EQ(received.ends, sent.ends);
    EXPECT_EQ(received.new_varying, sent.new_varying);
    EXPECT_EQ(received.operands, sent.operands);
    ASSERT_EQ(received.scalars.size(), sent.scalars.size());
    EXPECT_EQ(received.body->num_calls(), 7u);
  }
  // From now on the scalar's value must come.
  refused([](Replay&) {}, "doesn't have the scalars");
}

TEST_F(Replays, CostFortyEightBytesAndEightAtMostForWhatDiffers) {
  const size_t size = encode(sample_replay(false)).head->size();
  EXPECT_EQ(size, 48 + 4 * 4u);
  EXPECT_LE(encode(sample_replay(true)).head->size(), 64 + 8 * (4 + 1) + 4u);
}

TEST_F(Replays, MayComeInParts) {
  send(half_replay());
  refused([](Replay&) {}, "doesn't go on");
  Replay rest = sample_replay(false);
  rest.first_call = 4;
  rest.operands = {13};
  send(rest);
  send(sample_replay(false));
}

TEST_F(Replays, OneThatIsAbandonedNamesItsTemporaries) {
  send(half_replay());
  Replay abandon;
  abandon.graph = 3;
  abandon.id = 5;
  abandon.first_call = abandon.end_call = 4;
  abandon.ends = true;
  abandon.operands = {20, 21, 22};
  EXPECT_EQ(send(abandon).operands.size(), 3u);
  send(sample_replay(false));
}

TEST_F(Replays, WhatDoesNotFitItsTemplateIsRefused) {
  refused([](Replay& r) { r.graph = 4; }, "no templates");
  refused([](Replay& r) { r.id = 4; }, "undefined template");
  refused([](Replay& r) { r.id = 500; }, "undefined template");
  refused([](Replay& r) { r.first_call = 1; }, "doesn't go on");
  refused([](Replay& r) { r.end_call = 8; }, "out of range");
  refused([](Replay& r) { r.first_call = 2, r.end_call = 1; }, "out of range");
  refused([](Replay& r) { r.ends = false; }, "doesn't end");
  refused([](Replay& r) { r.operands.pop_back(); }, "operands of its calls");
  refused([](Replay& r) { r.operands.push_back(1); }, "operands of its calls");
  refused([](Replay& r) { r.operands[0] = kMaxOperand + 1; }, "operand number");
  refused([](Replay& r) { r.scalars.push_back({}); }, "scalars of its calls");
  refused([](Replay& r) { r.new_varying = {3}, r.scalars.resize(1); }, "begins to vary is out of range");
  refused([](Replay& r) { r.new_varying = {1, 1}, r.scalars.resize(2); }, "twice");
  refused([](Replay& r) { r.new_varying = {1}; }, "scalars of its calls");
  send(sample_replay(false));  // none of it left a trace
}

TEST_F(Replays, ThatCutAFusedRunAreRefused) {
  TemplateDefinition definition = sample_template();
  LogicalGraph calls = definition.body->calls();
  calls.operators.erase(calls.operators.begin() + 2, calls.operators.end());
  calls.operators.push_back(calls.operators[1]);
  calls.operands = {0, 1, 2};
  calls.operators[2].first_operand = 2;
  calls.operators[2].first_scalar = 2;
  calls.scalars.resize(4);
  calls.operators[1].flags = kFusedWithNext;
  definition.body = std::make_shared<const TemplateBody>(std::move(calls), 1);
  definition.new_specs.clear();
  decoder_.decode_template(encoder_.encode(definition));
  const auto part = [](uint32_t end, std::vector<OperandId> operands) {
    return [=](Replay& replay) {
      replay.end_call = end;
      replay.ends = end == 3;
      replay.operands = operands;
    };
  };
  refused(part(2, {10, 11}), "it cuts a fused run");
  Replay whole = sample_replay(false);
  part(3, {10, 11, 12})(whole);
  EXPECT_EQ(send(whole).operands.size(), 3u);
}

TEST_F(Replays, APieceInTheMiddleOfAnInstanceIsRefused) {
  send(half_replay());
  Piece piece;
  piece.graph = 3;
  EXPECT_THROW(decoder_.decode(encoder_.encode(piece)), DecodeError);
  EXPECT_THROW(decoder_.decode_template(encoder_.encode(sample_template())), DecodeError) << "it is being replayed";
  piece.graph = 4;
  decoder_.decode(encoder_.encode(piece));
}

TEST_F(Replays, ARedefinedTemplateForgetsWhatVaried) {
  send(sample_replay(true));
  TemplateDefinition again = sample_template();
  again.new_specs.clear();
  decoder_.decode_template(encoder_.encode(again));
  send(sample_replay(true));
}

}  // namespace
}  // namespace dtorch
