// Messages for the wire tests: one valid message of every kind, and random pieces.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "runtime/graph/inspection.h"
#include "runtime/graph/snapshot.h"
#include "runtime/graph/templates.h"

namespace dtorch::testing_graph {

inline constexpr uint16_t kNumOps = 50;
inline constexpr int64_t kNumDevices = 16;

Answer sample_answer();
// To restore three values of two Graphs; a part of one that isn't contiguous.
SnapshotOrder sample_snapshot();
SnapshotPart sample_part();
// One valid message of every kind but kPiece, kTemplate and kReplay.
std::vector<Message> sample_messages();
// A first piece: two meshes, metas with every kind of placement, three specs, a handful of calls and a release.
Piece sample_piece();

// A template with two live-ins (one of which it releases), temporaries, two values that outlive it and scalars.
TemplateDefinition sample_template();
// A whole instance of it, and the first half of one. `varies`: one of its scalars begins to vary with it.
Replay sample_replay(bool varies);
Replay half_replay();

// Draws pieces of one Graph that use and define specs as a client would.
class PieceSource {
 public:
  PieceSource(GraphId graph, uint32_t seed) : graph_(graph), random_(seed) {}
  Piece next(int num_calls);

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  const TensorMeta* random_meta();
  OperatorSpec random_spec();

  GraphId graph_;
  std::mt19937 random_;
  std::vector<OperatorSpec> specs_;
  Sequence sequence_ = 0;
};

// Calls the decoder of the message's kind; pieces and templates go to a new PieceDecoder, a replay to one that knows
// sample_template. Throws what the decoder throws.
void decode_any(const Message& message);

// The bytes with something changed, as a message of the same kind. Heads are never shared between results.
Message with_head(const Message& message, Bytes head);

// Whether two pieces mean the same, field by field; graphs compare by what each call refers to.
::std::string difference(const Piece& sent, const Piece& received);

}  // namespace dtorch::testing_graph
