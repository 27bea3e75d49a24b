#include "runtime/controller/replay_log.h"

#include <algorithm>
#include <utility>

#include "ops/def/effects.h"
#include "runtime/base/log.h"

namespace dtorch {

namespace {

// A program without optimizer steps is cut by what the log holds.
constexpr int64_t kMaxBytesBetween = int64_t{256} << 20;
constexpr size_t kMaxItemsBetween = 4096;
constexpr uint64_t kItemsBeforeAnother = 64;  // after a snapshot that was given up

int64_t size_of(const SharedBytes& bytes) { return bytes ? static_cast<int64_t>(bytes->size()) : 0; }

}  // namespace

int64_t ReplayLog::bytes_of(const Item& item) {
  int64_t bytes = static_cast<int64_t>(sizeof(Item)) + size_of(item.message.head);
  for (const PieceFeed& feed : item.feeds) bytes += size_of(feed.bytes);
  return bytes;
}

void ReplayLog::note_calls(Item& item, const LedgerEntry& entry) {
  for (const LedgerRead& read : entry.reads) reads_.enter(read.number, entry.sequence);
  CallEffects effects = entry.replay ? values_.note(item.graph, *entry.replay)
                                     : values_.note(item.graph, entry.graph, entry.stream->specs);
  steps_ += effects.steps;
  ends_step_ = effects.steps > 0;
  item.has_effects = effects.has_effects;
  item.sessions = std::move(effects.sessions);
  open_sessions_.insert(item.sessions.begin(), item.sessions.end());
  if (item.closes_graph) values_.close(item.graph);
}

void ReplayLog::add(Item item) {
  item.number = next_item_++;
  bytes_.fetch_add(bytes_of(item));
  items_.push_back(std::move(item));
  if (bytes_.load() > max_bytes_) give_up();
}

// What nodes have learned from the items is still needed for the snapshots to come.
void ReplayLog::give_up() {
  if (is_complete()) {
    log_warn(
        "more than {} MiB were sent to the nodes since the last snapshot (a Graph rests within a repetition, a save "
        "doesn't end, or host data come faster than copies): until the next one the job can't go on without a node "
        "that is lost",
        max_bytes_ >> 20);
  }
  const auto first = std::ranges::lower_bound(items_, given_up_to_, {}, &Item::number);
  for (auto item = first; item != items_.end(); ++item) {
    bytes_.fetch_sub(bytes_of(*item));
    item->message = {};
    item->feeds.clear();
    if (item->teaches()) bytes_.fetch_add(bytes_of(*item));
  }
  items_.erase(std::remove_if(first, items_.end(), [](const Item& item) { return !item.teaches(); }), items_.end());
  given_up_to_ = next_item_;
}

bool ReplayLog::is_cut_due() {
  if (pending_ || next_item_ < may_cut_from_) return false;
  if (is_complete() && steps_ < steps_between_ && bytes_.load() < kMaxBytesBetween && items_.size() < kMaxItemsBetween)
    return false;
  std::erase_if(open_sessions_, [this](uint64_t session) { return reads_.is_delivered(session); });
  return open_sessions_.empty() && !values_.is_in_instance() && is_good_place();
}

// Right after a step gradients live that the program is about to drop. So the next place is tried first; where more
// lives there (the next step's values), snapshots fall on steps from then on.
bool ReplayLog::is_good_place() {
  if (!is_complete() || steps_ < steps_between_) return true;  // the log is long
  if (ends_step_) {
    if (!waits_after_step_ || at_step_) return true;
    at_step_ = values_.num_bytes();
    return false;
  }
  if (!at_step_ || values_.num_bytes() <= *at_step_) return true;
  waits_after_step_ = false;
  at_step_.reset();
  return false;
}

const ReplayLog::Cut& ReplayLog::cut(Sequence last, size_t num_meshes) {
  steps_ = 0;
  at_step_.reset();
  pending_ = Cut{next_snapshot_++, last, next_item_, num_meshes, values_.all()};
  pending_last_.store(last);
  return *pending_;
}

void ReplayLog::learn(Item& item) {
  if (item.closes_graph) {
    known_.erase(item.graph);
    return;
  }
  KnownGraph& graph = known_[item.graph];
  for (OperatorSpec& spec : item.new_specs) graph.specs.push_back(std::move(spec));
  if (item.body) graph.templates[item.template_id] = {std::move(item.body), {}};
  for (uint32_t scalar : item.new_varying) graph.templates.at(item.template_id).varying.add(scalar);
}

void ReplayLog::commit() {
  base_ = std::move(*pending_);
  drop_pending();
  while (!items_.empty() && items_.front().number < base_.end_item) {
    bytes_.fetch_sub(bytes_of(items_.front()));
    learn(items_.front());
    items_.pop_front();
  }
  reads_.forget(base_.last);
  num_snapshots_.fetch_add(1);
}

void ReplayLog::drop_pending() {
  pending_.reset();
  pending_last_.store(0);
}

void ReplayLog::give_up_pending() {
  drop_pending();
  may_cut_from_ = next_item_ + kItemsBeforeAnother;
}

std::vector<Message> ReplayLog::definitions(PieceEncoder& encoder) const {
  std::vector<Message> messages;
  for (const auto& [id, graph] : known_) {
    Piece piece;
    piece.graph = id;
    piece.new_specs = graph.specs;
    messages.push_back(encoder.encode(piece));
    for (const auto& [number, known] : graph.templates) {
      messages.push_back(encoder.encode(TemplateDefinition{
          .graph = id, .id = number, .new_specs = {}, .body = known.body, .varying = known.varying.all()}));
    }
  }
  return messages;
}

void ReplayLog::note_done_effects(const Ledger& ledger) {
  for (Item& item : items_) {
    if (item.has_effects && !item.effects_done) item.effects_done = ledger.is_acknowledged(item.sequence);
  }
}

std::vector<uint64_t> ReplayLog::done_effects() {
  std::vector<uint64_t> done;
  std::set<uint64_t> seen;
  for (const Item& item : items_) {
    if (item.effects_done) done.push_back(effects_of_piece(item.sequence));
    for (uint64_t session : item.sessions) {
      if (!seen.insert(session).second || !reads_.is_delivered(session)) continue;
      done.push_back(session);
      reads_.skip(session);
    }
  }
  return done;
}

}  // namespace dtorch
