// Pieces over the wire: what is sent arrives, and what it costs.
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/graph/fused_runs.h"
#include "tests/graph/samples.h"

namespace dtorch {
namespace {

using namespace testing_graph;

TEST(PieceWire, ARoundTripKeepsEveryField) {
  PieceEncoder encoder;
  PieceDecoder decoder(kNumOps, kNumDevices);
  const Piece sent = sample_piece();
  const Piece received = decoder.decode(encoder.encode(sent));
  EXPECT_EQ(difference(sent, received), "");
  // Metadata are interned, so equal ones are the same object, shard order included.
  EXPECT_EQ(received.new_specs[1].outputs[0], sent.new_specs[1].outputs[0]);
  EXPECT_EQ(received.graph_part.scalars[0].as_double(), 0.5);
  EXPECT_EQ(received.graph_part.scalars[1].as_int(), -1);
  EXPECT_TRUE(received.graph_part.source_lines.empty());
}

TEST(PieceWire, AnEmptyPieceIsLegal) {
  PieceEncoder encoder;
  Piece sent;
  sent.sequence = 8;
  EXPECT_EQ(difference(sent, PieceDecoder(1, 1).decode(encoder.encode(sent))), "");
}

TEST(PieceWire, RandomPiecesOfTwoGraphsArriveAsSent) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    PieceEncoder encoder;
    PieceDecoder decoder(kNumOps, kNumDevices);
    PieceSource sources[] = {{0, seed}, {7, seed + 1000}};
    for (int i = 0; i < 20; ++i) {
      const Piece sent = sources[i % 2].next(i * 7);
      ASSERT_EQ(difference(sent, decoder.decode(encoder.encode(sent))), "") << "seed " << seed << ", piece " << i;
    }
  }
}

TEST(PieceWire, CallsWhoseOperandsLieOutOfOrderArriveInOrder) {
  Piece sent = sample_piece();
  LogicalGraph& graph = sent.graph_part;
  std::swap(graph.operators[1], graph.operators[2]);
  graph.operands.push_back(77);  // belongs to no call, as after a pass that dropped one
  PieceEncoder encoder;
  const Piece received = PieceDecoder(kNumOps, kNumDevices).decode(encoder.encode(sent));
  EXPECT_EQ(difference(sent, received), "");
  uint32_t operand = 0;
  for (const Operator& op : received.graph_part.operators) {
    EXPECT_EQ(op.first_operand, operand);
    operand += op.num_inputs + op.num_outputs;
  }
  EXPECT_EQ(received.graph_part.operands.size(), operand);
}

TEST(PieceWire, AMeshTravelsOncePerEncoder) {
  std::vector<int64_t> devices(1000);
  std::iota(devices.begin(), devices.end(), 0);
  const DeviceMesh mesh("cpu", {1000}, devices);
  PieceEncoder encoder;
  PieceDecoder decoder(kNumOps, 1000);
  Piece piece;
  for (uint32_t id = 0; id < 4; ++id) {
    piece.new_specs = {{id, 0, "", {intern_meta({id + 1}, kFloat32, Layout::replicated(mesh))}, {}}};
    const Message message = encoder.encode(piece);
    EXPECT_EQ(message.head->size() > 8000, id == 0) << message.head->size();
    EXPECT_EQ(difference(piece, decoder.decode(message)), "");
  }
}

TEST(PieceWire, ACallCosts12BytesAnd4AnOperandAnd8AScalar) {
  PieceEncoder encoder;
  Piece piece = sample_piece();
  encoder.encode(piece);
  piece.new_specs.clear();
  const Operator call{1, 0, 0, 2, 1, 1, 0};  // c = a + b, with one scalar
  constexpr uint32_t kCalls = 10000;
  piece.graph_part.clear();
  for (uint32_t i = 0; i < kCalls; ++i) {
    Operator op = call;
    op.first_operand = 3 * i;
    op.first_scalar = i;
    piece.graph_part.operators.push_back(op);
    for (OperandId id : {1u, 2u, 3u}) piece.graph_part.operands.push_back(id);
    piece.graph_part.scalars.push_back(Scalar::of_int(i));
  }
  EXPECT_LE(encoder.encode(piece).head->size(), kCalls * (12u + 3 * 4 + 8) + 160);
}

TEST(PieceWire, DamagedDefinitionsAreTakenBackAndTheDecoderStaysUsable) {
  PieceEncoder encoder;
  PieceDecoder decoder(kNumOps, kNumDevices);
  const Piece sent = sample_piece();
  const Message message = encoder.encode(sent);
  Piece wrong = sent;
  wrong.graph_part.operators.back().spec = 9;  // undefined
  PieceEncoder other;
  const Message damaged = other.encode(wrong);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(decoder.decode(damaged), DecodeError);
  EXPECT_EQ(difference(sent, decoder.decode(message)), "");
  Piece next = sent;
  next.new_specs.clear();
  EXPECT_EQ(difference(next, decoder.decode(encoder.encode(next))), "");
  EXPECT_THROW(decoder.decode(damaged), DecodeError);
  EXPECT_EQ(difference(next, decoder.decode(encoder.encode(next))), "");
}

std::string refusal(const Piece& piece, uint16_t num_ops = kNumOps, int64_t num_devices = kNumDevices) {
  PieceEncoder encoder;
  try {
    PieceDecoder(num_ops, num_devices).decode(encoder.encode(piece));
  } catch (const DecodeError& error) {
    return error.what();
  }
  return "accepted";
}

#define EXPECT_REFUSED(piece, reason) EXPECT_NE(refusal(piece).find(reason), std::string::npos) << refusal(piece)

TEST(PieceWire, RefusesCallsThatDoNotFitTheirSpec) {
  Piece piece = sample_piece();
  piece.graph_part.operators[0].spec = 3;
  EXPECT_REFUSED(piece, "call 0 is of an undefined spec");
  piece = sample_piece();
  piece.graph_part.operators[1].spec = 2;
  EXPECT_REFUSED(piece, "call 1 doesn't have the operands of its spec");
  piece = sample_piece();
  piece.graph_part.operators[2].flags = 0x20;
  EXPECT_REFUSED(piece, "call 2 has unknown flags");
  piece = sample_piece();
  piece.graph_part.operators.back().flags = kFusedWithNext;
  EXPECT_REFUSED(piece, "is fused with nothing");
  piece = sample_piece();
  piece.graph_part.operators[0].flags = kFusedWithNext;  // the next has two outputs
  EXPECT_REFUSED(piece, "call 1 can't be fused with the call before it");
  piece = sample_piece();
  piece.graph_part.operators[0].spec = kReleaseSpec;
  EXPECT_REFUSED(piece, "call 0 is a release with outputs or scalars");
  piece = sample_piece();
  piece.graph_part.operands[0] = kMaxOperand + 1;  // output of call 0
  EXPECT_REFUSED(piece, "call 0 has an output number that is out of range");
}

TEST(PieceWire, RefusesSpecsThatCanNotBe) {
  EXPECT_NE(refusal(sample_piece(), 49).find("unknown operator"), std::string::npos);
  EXPECT_NE(refusal(sample_piece(), kNumOps, 7).find("unknown device"), std::string::npos);
  EXPECT_EQ(refusal(sample_piece(), kNumOps, 8), "accepted");
  Piece piece = sample_piece();
  piece.new_specs[2].id = 1;
  EXPECT_REFUSED(piece, "defined twice");
  piece = sample_piece();
  piece.new_specs[2].id = 0xFFFFFFFE;
  EXPECT_REFUSED(piece, "out of range");
}

TEST(PieceWire, RefusesASecondDefinitionInALaterPiece) {
  PieceDecoder decoder(kNumOps, kNumDevices);
  PieceEncoder encoder;
  decoder.decode(encoder.encode(sample_piece()));
  EXPECT_THROW(decoder.decode(encoder.encode(sample_piece())), DecodeError);
  Piece other_graph = sample_piece();
  other_graph.graph = 4;  // has specs of its own
  EXPECT_EQ(difference(other_graph, decoder.decode(encoder.encode(other_graph))), "");
}

TEST(PieceWire, RefusesAPieceWhoseMeshesWereNeverSentToThisDecoder) {
  PieceEncoder encoder;
  encoder.encode(sample_piece());
  const Message second = encoder.encode(sample_piece());
  EXPECT_THROW(PieceDecoder(kNumOps, kNumDevices).decode(second), DecodeError);
}

}  // namespace
}  // namespace dtorch
