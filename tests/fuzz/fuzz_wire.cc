// Fuzz target for all decoders of control messages. The input is a packed message (see runtime/graph/wire.cc); the
// seeds hold one of every kind. A decoder may throw DecodeError and nothing else.
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/graph/inspection.h"
#include "runtime/graph/snapshot.h"
#include "runtime/graph/templates.h"

namespace {

using namespace dtorch;

// What replays of the seeds refer to: template 5 of Graph 3, with two live-ins, a temporary and scalars.
TemplateDefinition known_template() {
  const TensorMeta* meta = intern_meta({8}, kFloat32, Layout::replicated(init_device_mesh("cpu", {4})));
  TemplateDefinition definition;
  definition.epoch = 1;
  definition.graph = 3;
  definition.id = 5;
  definition.new_specs = {{0, 7, "", {meta, meta}, {meta}}};
  LogicalGraph calls;
  calls.operators = {
      {.spec = 0, .num_inputs = 2, .num_outputs = 1, .num_scalars = 1},
      {.spec = 0, .first_operand = 3, .first_scalar = 1, .num_inputs = 2, .num_outputs = 1, .num_scalars = 1},
      {.spec = kReleaseSpec, .first_operand = 6, .first_scalar = 2, .num_inputs = 1}};
  calls.operands = {0, 1, 2, 2, 0, 3, 2};
  calls.scalars = {Scalar::of(0.5), Scalar::of(2)};
  definition.body = std::make_shared<const TemplateBody>(std::move(calls), 2);
  return definition;
}

void replay(const Message& message) {
  PieceEncoder encoder;
  PieceDecoder decoder(50, 16);
  decoder.decode_template(encoder.encode(known_template()));
  const Replay first = decoder.decode_replay(message);
  // What was accepted says the same when it is sent on.
  KnownTemplates known;
  known.by_id.resize(size_t{first.id} + 1);
  known.by_id[first.id].body = first.body;
  const Replay again = take_replay(encode(first), known);
  DTORCH_CHECK(again.operands == first.operands && again.end_call == first.end_call, "a replay changed on its way");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Message message = unpack(std::as_bytes(std::span(data, size)));
    switch (message.kind) {
      case MessageKind::kHello:
        decode_hello(message);
        break;
      case MessageKind::kConfig:
        decode_config(message);
        break;
      case MessageKind::kPiece: {
        PieceDecoder decoder(50, 16);
        const Piece piece = decoder.decode(message);
        // What was accepted can be sent on, and reads the same.
        PieceEncoder encoder;
        const Piece again = PieceDecoder(50, 16).decode(encoder.encode(piece));
        DTORCH_CHECK(again.graph_part.operands == piece.graph_part.operands, "a piece changed on its way");
        break;
      }
      case MessageKind::kFeed:
        decode_feed(message);
        break;
      case MessageKind::kAck:
        decode_ack(message);
        break;
      case MessageKind::kError:
        decode_error(message);
        break;
      case MessageKind::kReadData:
        decode_read_data(message);
        break;
      case MessageKind::kShutdown:
        decode_shutdown(message);
        break;
      case MessageKind::kGoodbye:
        decode_goodbye(message);
        break;
      case MessageKind::kResetPeak:
        decode_reset_peak(message);
        break;
      case MessageKind::kTemplate: {
        PieceDecoder decoder(50, 16);
        const TemplateDefinition definition = decoder.decode_template(message);
        PieceEncoder encoder;
        const TemplateDefinition again = PieceDecoder(50, 16).decode_template(encoder.encode(definition));
        DTORCH_CHECK(again.body->calls().operands == definition.body->calls().operands,
                     "a template changed on its way");
        break;
      }
      case MessageKind::kReplay:
        replay(message);
        break;
      case MessageKind::kInspect:
        decode_inspect(message);
        break;
      case MessageKind::kAnswer:
        decode_answer(message);
        break;
      case MessageKind::kSnapshot: {
        const SnapshotOrder order = PieceDecoder(50, 16).decode_snapshot(message);
        PieceEncoder encoder;
        const SnapshotOrder again = PieceDecoder(50, 16).decode_snapshot(encoder.encode(order));
        DTORCH_CHECK(again.values == order.values && again.places == order.places, "a snapshot changed on its way");
        break;
      }
      case MessageKind::kSnapshotPart:
        decode_snapshot_part(message);
        break;
      case MessageKind::kSnapshotStored:
        decode_snapshot_stored(message);
        break;
    }
  } catch (const DecodeError&) {
    return 0;
  }
  return 0;
}
