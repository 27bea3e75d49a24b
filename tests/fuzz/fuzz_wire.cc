// Fuzz target for all decoders of control messages. The input is a packed message (see runtime/graph/wire.cc); the
// seeds hold one of every kind. A decoder may throw DecodeError and nothing else.
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/graph/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dtorch;
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
    }
  } catch (const DecodeError&) {
    return 0;
  }
  return 0;
}
