#include "runtime/controller/sequencer.h"

#include <set>
#include <utility>

namespace dtorch {

bool Sequencer::submit(GraphStream& stream, PieceDraft draft) {
  auto entry = std::make_unique<LedgerEntry>();
  entry->stream = &stream;
  entry->num_operators = draft.num_operators;
  entry->num_bytes = draft.num_bytes;
  entry->reads = std::move(draft.reads);
  entry->barriers = std::move(draft.barriers);
  if (!credits_.take(draft.num_operators, draft.num_bytes)) return ledger_.enter(std::move(entry));  // fails the reads
  send_feeds(draft.feeds);

  std::lock_guard lock(mutex_);
  Piece piece;
  piece.epoch = epoch_;
  piece.sequence = next_sequence_;
  piece.graph = stream.link->id;
  piece.first_transfer = next_transfer_;
  piece.wants_ack_now = draft.wants_ack_now;
  piece.new_specs = std::move(draft.new_specs);
  piece.graph_part = std::move(draft.graph);
  const Message message = encoder_.encode(piece);
  entry->sequence = piece.sequence;
  entry->graph = std::move(piece.graph_part);
  if (!ledger_.enter(std::move(entry))) return false;
  ++next_sequence_;
  next_transfer_ += draft.num_transfers;
  for (int32_t node = 0; node < binding_.num_nodes; ++node) control_.send(node, message);
  return true;
}

void Sequencer::send_feeds(const std::vector<PieceFeed>& feeds) {
  for (const PieceFeed& feed : feeds) {
    const Message message = encode(Feed{.epoch = epoch_, .feed = feed.number, .num_uses = 1}, feed.bytes);
    std::set<int32_t> nodes;
    for (int64_t device : feed.mesh.devices()) nodes.insert(binding_.node_of(device));
    for (int32_t node : nodes) control_.send(node, message);
  }
}

}  // namespace dtorch
