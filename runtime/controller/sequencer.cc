#include "runtime/controller/sequencer.h"

#include <set>
#include <utility>

namespace dtorch {

namespace {

// What is shared with the program may be written to again once the nodes have used it; the log has to keep it as it is.
void own_feeds(std::vector<PieceFeed>& feeds) {
  for (PieceFeed& feed : feeds) {
    if (feed.bytes.use_count() > 1) feed.bytes = std::make_shared<const Bytes>(*feed.bytes);
  }
}

// A client's specs live no longer than its Graph.
std::vector<OperatorSpec> copies_of(std::span<const OperatorSpec* const> specs) {
  std::vector<OperatorSpec> copies;
  copies.reserve(specs.size());
  for (const OperatorSpec* spec : specs) copies.push_back(*spec);
  return copies;
}

}  // namespace

bool Sequencer::submit(GraphStream& stream, PieceDraft draft) {
  auto entry = std::make_unique<LedgerEntry>();
  entry->stream = &stream;
  entry->num_operators = draft.num_operators;
  entry->num_bytes = draft.num_bytes;
  entry->reads = std::move(draft.reads);
  entry->barriers = std::move(draft.barriers);
  if (!credits_.take(draft.num_operators, draft.num_bytes)) return ledger_.enter(std::move(entry));  // fails the reads

  if (log_ != nullptr) own_feeds(draft.feeds);
  std::lock_guard lock(mutex_);
  send_feeds(draft.feeds);
  entry->sequence = next_sequence_;
  ReplayLog::Item item;
  if (log_ != nullptr) {
    item = {.sequence = next_sequence_,
            .graph = stream.link->id,
            .num_operators = draft.num_operators,
            .num_bytes = draft.num_bytes};
    item.feeds = std::move(draft.feeds);
    item.new_specs = copies_of(draft.new_specs);
    item.closes_graph = draft.closes_graph;
    if (draft.replay) {
      item.template_id = draft.replay->id;
      item.new_varying = draft.replay->new_varying;
    }
  }
  Message message = draft.replay ? encode_replay(stream, draft, *entry) : encode_piece(stream, draft, *entry);
  if (log_ != nullptr) log_->note_calls(item, *entry);
  if (!ledger_.enter(std::move(entry))) return false;
  ++next_sequence_;
  next_transfer_ += draft.num_transfers;
  if (log_ != nullptr) {
    item.message = message;
    log_->add(std::move(item));
  }
  send_down(std::move(message));
  if (log_ != nullptr) cut_if_due();
  return true;
}

Message Sequencer::encode_piece(const GraphStream& stream, PieceDraft& draft, LedgerEntry& entry) {
  Piece piece;
  piece.epoch = route_.epoch;
  piece.sequence = next_sequence_;
  piece.graph = stream.link->id;
  piece.first_transfer = next_transfer_;
  piece.wants_ack_now = draft.wants_ack_now;
  piece.closes_graph = draft.closes_graph;
  piece.wants_statistics = !entry.barriers.empty();
  piece.graph_part = std::move(draft.graph);
  Message message = encoder_.encode(piece, draft.new_specs);
  entry.graph = std::move(piece.graph_part);
  return message;
}

Message Sequencer::encode_replay(const GraphStream& stream, PieceDraft& draft, LedgerEntry& entry) {
  ReplayDraft& of = *draft.replay;
  Replay replay;
  replay.epoch = route_.epoch;
  replay.sequence = next_sequence_;
  replay.graph = stream.link->id;
  replay.first_transfer = next_transfer_;
  replay.id = of.id;
  replay.first_call = of.first_call;
  replay.end_call = of.end_call;
  replay.wants_ack_now = draft.wants_ack_now;
  replay.wants_statistics = !entry.barriers.empty();
  replay.ends = of.ends;
  replay.new_varying = std::move(of.new_varying);
  replay.operands = std::move(of.operands);
  replay.scalars = std::move(of.scalars);
  entry.replay = std::move(draft.replay);
  return encode(replay);
}

void Sequencer::define(GraphStream& stream, const Template& added, std::span<const OperatorSpec* const> new_specs) {
  std::lock_guard lock(mutex_);
  ReplayLog::Item item;
  if (log_ != nullptr) {
    log_->note_template(stream.link->id, added, stream.specs);
    item = {.graph = stream.link->id, .new_specs = copies_of(new_specs), .template_id = added.id, .body = added.body};
  }
  Message message = encoder_.encode(
      TemplateDefinition{
          .epoch = route_.epoch, .graph = stream.link->id, .id = added.id, .new_specs = {}, .body = added.body},
      new_specs);
  if (log_ != nullptr) {
    item.message = message;
    log_->add(std::move(item));
  }
  send_down(std::move(message));
  ledger_.count_template();
}

void Sequencer::send_to_all(Message message) {
  std::lock_guard lock(mutex_);
  send_down(std::move(message));
}

// By way of the nodes that pass it on.
void Sequencer::send_down(Message message) {
  message.epoch = route_.epoch;
  for (int32_t node : route_.tree.children(kController)) control_.send(node, message);
}

// The values at this place are kept from here on; whether they are worth anything is known when all before it is done.
void Sequencer::cut_if_due() {
  if (!log_->is_cut_due()) return;
  const ReplayLog::Cut& cut = log_->cut(next_sequence_ - 1, encoder_.num_meshes());
  send_down(encoder_.encode(SnapshotOrder{.snapshot = cut.snapshot, .action = SnapshotAction::kTake}));
}

// The same way as the pieces that use them, so that they come first.
void Sequencer::send_feeds(const std::vector<PieceFeed>& feeds) {
  const FanOut& tree = route_.tree;
  for (const PieceFeed& feed : feeds) {
    std::set<int32_t> nodes, branches;
    for (int64_t device : feed.mesh.devices()) nodes.insert(route_.binding.node_of(device));
    for (int32_t node : nodes) branches.insert(tree.branch_of(node));
    Feed fields{.epoch = route_.epoch, .feed = feed.number, .num_uses = 1};
    if (tree.has_root()) fields.nodes.assign(nodes.begin(), nodes.end());
    const Message message = encode(fields, feed.bytes);
    for (int32_t branch : branches) control_.send(branch, message);
  }
}

}  // namespace dtorch
