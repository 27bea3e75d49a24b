// The executor's part in templates; see eager_graph_executor.h.
#include "runtime/controller/eager_graph_executor.h"

namespace dtorch {

namespace {

// An instance under way is sent in parts of at least this share of its calls, unless the client pauses.
constexpr uint32_t kPartsOfInstance = 4;

}  // namespace

bool EagerGraphExecutor::take_replayed(const RecordShape& shape) {
  if (!instance_.active()) {
    if (log_.size() != 0) return false;  // a subgraph under way that is none
    TemplatePtr predicted = predicted_ && !predicted_->removed ? predicted_ : nullptr;
    if (predicted == nullptr || predicted->records.named.records[0].shape != shape) {
      const std::vector<TemplatePtr> others = store_.candidates(nullptr, 0, shape);
      if (others.empty()) return false;
      predicted = others.front();
    }
    instance_.begin(std::move(predicted));
    look_at_size();
  }
  if (instance_.match(shape, reader_)) return true;
  if (!instance_.anything_sent()) {
    for (const TemplatePtr& other : store_.candidates(instance_.of().get(), instance_.num_matched(), shape)) {
      instance_.switch_to(other);
      look_at_size();
      if (instance_.match(shape, reader_)) return true;
    }
  }
  break_instance();
  return false;
}

// One that holds more than the credit for a piece is sent in parts.
void EagerGraphExecutor::look_at_size() {
  const Template::Sums& all = instance_.of()->before.back();
  instance_in_parts_ = all.credit_operators >= max_replay_operators_ || all.bytes >= max_piece_bytes_ / 2;
}

void EagerGraphExecutor::after_match(bool boundary) {
  if (instance_.complete()) {
    send_replay(instance_.of()->body->num_calls());
    store_.use(*instance_.of());
    follow(instance_.of());
    instance_.end();
    return;
  }
  if (boundary || !instance_in_parts_) return;  // a boundary breaks it
  const std::vector<Template::Sums>& before = instance_.of()->before;
  const Template::Sums& sent = before[instance_.num_sent()];
  const uint32_t end = instance_.sendable();
  if (before[end].credit_operators - sent.credit_operators >= max_replay_operators_ ||
      before[end].bytes - sent.bytes + draft_.num_bytes >= max_piece_bytes_) {
    if (end > instance_.num_sent()) send_replay(end);
  }
}

bool EagerGraphExecutor::worth_sending() {
  if (!instance_.active()) return false;
  const uint32_t unsent = instance_.sendable() - instance_.num_sent();
  return unsent != 0 && unsent * kPartsOfInstance >= instance_.of()->body->num_calls();
}

void EagerGraphExecutor::send_replay(uint32_t end) {
  TraceSpan span("send a replay");
  PieceDraft draft = std::move(draft_);
  draft_ = {};
  draft.replay = std::make_unique<ReplayDraft>(instance_.send(end));
  const Template::Sums sums = draft.replay->sums();
  draft.num_transfers = sums.transfers;
  draft.num_operators = sums.credit_operators;
  draft.num_bytes += sums.bytes;
  span.set_number(sums.operators);
  sequencer_.submit(stream_, std::move(draft));
}

void EagerGraphExecutor::break_instance() {
  const uint32_t first = instance_.first_unsent_record();
  const bool nothing_matched = instance_.num_matched() == 0;
  if (instance_.anything_sent()) {
    PieceDraft draft;
    draft.replay = std::make_unique<ReplayDraft>(instance_.abandon());
    sequencer_.submit(stream_, std::move(draft));
  }
  instance_.copy_records(log_);
  instance_.end();
  if (nothing_matched) return;
  ledger_.count_template_break();
  for (size_t i = 0; i < log_.size(); ++i) {
    loops_.add(log_.records[i].shape.hash());
    if (i < first) continue;
    draft_record(log_.records[i]);
    if (draft_is_full()) send_piece();
  }
}

// What was drafted until here ends, and the stretch that it ends with is expected to go on.
void EagerGraphExecutor::end_loop(size_t stretch) {
  send_piece();
  follow(subgraph_as_template());
  NamedStretch named = namer_.name(log_, log_.size() - stretch);
  predicted_ = store_.find(named);
  if (predicted_ == nullptr) predicted_ = keep(std::move(named));
  if (previous_ && predicted_) previous_->successor = predicted_;
  clear_log();
}

// The template that the loose subgraph is: an old one, or a new one when it is a repetition.
TemplatePtr EagerGraphExecutor::subgraph_as_template() {
  NamedStretch stretch = namer_.name(log_, 0);
  if (TemplatePtr found = store_.find(stretch)) return found;
  const TemplateStore::Appearance appearance = store_.note(stretch);
  const bool early = appearance == TemplateStore::Appearance::kFirst && !log_has_new_specs_ && store_.may_keep_early();
  if (appearance != TemplateStore::Appearance::kAgain && !early) return nullptr;
  TemplatePtr kept = keep(std::move(stretch));
  if (kept && early) store_.kept_early(*kept);
  return kept;
}

TemplatePtr EagerGraphExecutor::keep(NamedStretch stretch) {
  const uint64_t hash = stretch.prefix_hashes.back();
  TemplatePtr made = make_template(std::move(stretch), stream_.specs, passes_);
  if (made == nullptr || !store_.add(made)) {
    store_.refuse(hash);
    return nullptr;
  }
  sequencer_.define(stream_, *made, new_specs_of(made->body->calls()));
  return made;
}

void EagerGraphExecutor::follow(const TemplatePtr& subgraph) {
  if (previous_ && subgraph) previous_->successor = subgraph;
  previous_ = subgraph;
  predicted_ = subgraph ? subgraph->successor.lock() : nullptr;
}

}  // namespace dtorch
