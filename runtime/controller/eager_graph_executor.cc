#include "runtime/controller/eager_graph_executor.h"

#include <pthread.h>

#include <algorithm>

namespace dtorch {

namespace {

// A piece isn't longer than this in operands either, so that a stream of releases is sent now and then.
constexpr size_t kMaxPieceOperands = 1 << 15;
constexpr int kSpins = 200;
// Records that the client gets back the room of at once.
constexpr size_t kMatchedAtOnce = 64;

}  // namespace

EagerGraphExecutor::EagerGraphExecutor(std::shared_ptr<GraphLink> link, Ledger& ledger, Sequencer& sequencer,
                                       Credits& credits, PassList passes, bool templates, SpanLog* spans)
    : stream_(std::move(link)),
      ledger_(ledger),
      sequencer_(sequencer),
      passes_(std::move(passes)),
      templates_(templates),
      max_piece_operators_(std::clamp<int64_t>(credits.max_operators() / 4, 1, kMaxPiece)),
      max_replay_operators_(std::max<int64_t>(credits.max_operators() / 4, 1)),
      max_piece_bytes_(credits.max_bytes() / 4),
      loops_(kMaxSubgraph) {
  ledger_.add_stream(stream_);
  thread_ = std::thread([this, spans] { loop(spans); });
}

EagerGraphExecutor::~EagerGraphExecutor() {
  close();
  ledger_.remove_stream(stream_);
}

void EagerGraphExecutor::close() {
  ending_.store(true);
  stream_.link->ring.wake_consumer();
  if (thread_.joinable()) thread_.join();
  ledger_.wait_settled(stream_);
}

void EagerGraphExecutor::loop(SpanLog* spans) {
  static_cast<void>(pthread_setname_np(pthread_self(), "dtorch-graph"));  // for tools, where it is allowed
  thread_span_log = spans;
  try {
    take_records();
  } catch (...) {
    ledger_.fail_all(std::current_exception());
  }
  if (!closed_) answer_with_failure();
  stream_.link->ring.close();
}

void EagerGraphExecutor::take_records() {
  while (!closed_ && !ledger_.has_failed()) {
    if (instance_.active() && take_matching()) continue;
    if (reader_.read(stream_.link->ring)) {
      take_record();
    } else {
      wait_for_records();
    }
  }
  if (!closed_ || ledger_.has_failed()) return;
  draft_ = {};
  draft_.closes_graph = draft_.wants_ack_now = true;
  send_piece();
}

void EagerGraphExecutor::wait_for_records() {
  SpscRing<Cell>& ring = stream_.link->ring;
  const auto send_if = [&](bool worth) {
    if (!worth) return false;
    stream_.wants_wakeup.store(true);  // before the look at what is in flight, so that no wake-up is missed
    if (!idles()) return false;
    stream_.wants_wakeup.store(false);
    if (instance_.active()) {
      send_replay(instance_.sendable());
    } else {
      send_piece();
    }
    return true;
  };
  if (send_if(!draft_.graph.empty() || worth_sending())) return;
  for (int i = 0; i < kSpins; ++i) {
    if (ring.readable() != 0) break;
    std::this_thread::yield();
  }
  // The client pauses: whatever may be sent is worth it.
  const bool has_unsent = !draft_.graph.empty() || (instance_.active() && instance_.sendable() > instance_.num_sent());
  if (ring.readable() == 0 && !send_if(has_unsent)) ring.wait_readable(0);
  stream_.wants_wakeup.store(false);
}

// What nearly every record is when a program repeats itself. False: there is none, or it has to be read. (Not inlined:
// it is counted by its name.)
[[gnu::noinline]] bool EagerGraphExecutor::take_matching() {
  if (instance_.match_cells(stream_.link->ring, instance_in_parts_ ? 1 : kMatchedAtOnce) == 0) return false;
  if (instance_.complete() || instance_in_parts_) after_match(false);
  return true;
}

void EagerGraphExecutor::take_record() {
  const RecordShape shape = RecordShape::of(reader_);
  const bool is_plain = !shape.has_payload && reader_.kind() == RecordKind::kOperator;
  if (!is_plain || !instance_.active() || !instance_.match(shape, reader_)) return take_any_record(shape);
  reader_.consume(stream_.link->ring);
  if (instance_.complete() || instance_in_parts_) after_match(false);
}

void EagerGraphExecutor::take_any_record(const RecordShape& shape) {
  const bool has_content = shape.spec != nullptr || shape.num_releases != 0;
  const bool flushes = reader_.kind() != RecordKind::kOperator;
  IntrusivePtr<RecordPayload> payload;
  if (shape.has_payload) payload = reader_.take_payload();
  bool replayed = false;
  if (has_content) {
    replayed = templates_ && take_replayed(shape);
    if (!replayed) take_loose(shape, payload && payload->feed.defined());
  }
  if (payload) take_payload(*payload);
  closed_ = reader_.kind() == RecordKind::kClose;
  reader_.consume(stream_.link->ring);

  const bool boundary = flushes || (!replayed && shape.spec != nullptr && stream_.specs.at(shape.spec->id).is_read);
  if (replayed) after_match(flushes);
  if (instance_.active()) {
    if (!flushes) return;
    break_instance();
  }
  if (replayed && !flushes) return;
  const size_t stretch = templates_ && has_content && !replayed ? loops_.add(shape.hash()) : 0;
  if (boundary || log_.size() >= kMaxSubgraph) {
    end_subgraph();
  } else if (stretch != 0) {
    end_loop(stretch);
  } else if (draft_is_full()) {
    send_piece();
  }
}

// Reads, host data and barriers travel with the piece that comes next.
void EagerGraphExecutor::take_payload(RecordPayload& payload) {
  const OperatorSpec* spec = reader_.spec();
  DTORCH_CHECK(spec == nullptr || !reader_.scalars().empty(), "a read or feed without its number");
  if (payload.read) {
    draft_.wants_ack_now = true;
    if (spec == nullptr) {
      draft_.barriers.push_back(payload.read);
    } else {
      draft_.reads.push_back({reader_.scalars()[0].bits, payload.read});
    }
  }
  if (!payload.feed.defined()) return;
  DTORCH_CHECK(spec != nullptr, "a feed without its operator");
  // Nobody else wants it: what the program doesn't keep is the piece's alone.
  const HostTensor feed = std::move(payload.feed);
  draft_.feeds.push_back({reader_.scalars()[0].bits, feed.shared_bytes(), spec->outputs.at(0)->layout.mesh()});
  draft_.num_bytes += feed.num_bytes();
}

// --- loose
// -----------------------------------------------------------------------------------------------------------------------

void EagerGraphExecutor::take_loose(const RecordShape& shape, bool has_feed) {
  if (shape.spec != nullptr && !stream_.specs.find_or_add(*shape.spec, has_feed).defined_on_nodes)
    log_has_new_specs_ = true;
  if (!templates_) log_.clear();  // nobody asks for it
  log_.append(shape, {reader_.inputs().data(), shape.num_operands()}, reader_.scalars());
  draft_record(log_.records.back());
}

void EagerGraphExecutor::draft_record(const RecordStretch::Record& record) {
  const RecordShape& shape = record.shape;
  LogicalGraph& graph = draft_.graph;
  draft_releases(log_.releases(record));
  if (shape.spec == nullptr) return;
  graph.operators.push_back({.spec = shape.spec->id,
                             .first_operand = static_cast<uint32_t>(graph.operands.size()),
                             .first_scalar = static_cast<uint32_t>(graph.scalars.size()),
                             .num_inputs = shape.num_inputs,
                             .num_outputs = shape.num_outputs,
                             .num_scalars = shape.num_scalars});
  // They are few, so that one by one is the fastest.
  for (OperandId slot : log_.inputs(record)) graph.operands.push_back(slot);
  for (OperandId slot : log_.outputs(record)) graph.operands.push_back(slot);
  for (const Scalar& scalar : log_.scalars_of(record)) graph.scalars.push_back(scalar);
  graph.source_lines.push_back({shape.file, shape.line});
  const SpecInfo& info = stream_.specs.at(shape.spec->id);
  if (info.is_read) return;
  ++draft_.num_operators;
  draft_.num_bytes += info.output_bytes;
}

void EagerGraphExecutor::draft_releases(std::span<const OperandId> slots) {
  LogicalGraph& graph = draft_.graph;
  for (OperandId slot : slots) {
    const bool continues = !graph.operators.empty() && graph.operators.back().spec == kReleaseSpec &&
                           graph.operators.back().num_inputs < 0xFFFF;
    if (!continues) {
      graph.operators.push_back({.spec = kReleaseSpec,
                                 .first_operand = static_cast<uint32_t>(graph.operands.size()),
                                 .first_scalar = static_cast<uint32_t>(graph.scalars.size())});
      graph.source_lines.push_back({});
    }
    graph.operands.push_back(slot);
    ++graph.operators.back().num_inputs;
  }
}

bool EagerGraphExecutor::draft_is_full() const {
  return draft_.num_operators >= max_piece_operators_ || draft_.num_bytes >= max_piece_bytes_ ||
         draft_.graph.operands.size() >= kMaxPieceOperands;
}

void EagerGraphExecutor::end_subgraph() {
  send_piece();
  if (templates_ && log_.size() != 0) follow(subgraph_as_template());
  clear_log();
}

void EagerGraphExecutor::clear_log() {
  log_.clear();
  log_has_new_specs_ = false;
  loops_.clear();
}

void EagerGraphExecutor::finish_draft() {
  for (const auto& pass : passes_) pass->run(draft_.graph, {stream_.specs});
  for (const auto& pass : passes_) pass->finish(draft_.graph, {stream_.specs});
  for (const Operator& op : draft_.graph.operators) {
    if (op.is_call() && stream_.specs.at(op.spec).moves_data) ++draft_.num_transfers;
  }
  draft_.new_specs = new_specs_of(draft_.graph);
}

std::vector<const OperatorSpec*> EagerGraphExecutor::new_specs_of(const LogicalGraph& graph) {
  std::vector<const OperatorSpec*> new_specs;
  for (const Operator& op : graph.operators) {
    if (!op.is_call()) continue;
    SpecInfo& info = stream_.specs.at(op.spec);
    if (info.defined_on_nodes) continue;
    info.defined_on_nodes = true;
    new_specs.push_back(info.spec);
  }
  return new_specs;
}

void EagerGraphExecutor::send_piece() {
  TraceSpan span("send a piece");
  span.set_number(draft_.num_operators);
  finish_draft();
  PieceDraft draft = std::move(draft_);
  draft_ = {};
  if (draft.graph.empty() && !draft.wants_ack_now) return;
  // False: everything has failed, which the loop sees.
  sequencer_.submit(stream_, std::move(draft));
}

void EagerGraphExecutor::answer_with_failure() {
  SpscRing<Cell>& ring = stream_.link->ring;
  const auto answer = [&](const IntrusivePtr<ReadState>& read) { read->fail(ledger_.failure()); };
  for (const LedgerRead& read : draft_.reads) answer(read.state);
  for (const auto& barrier : draft_.barriers) answer(barrier);
  draft_ = {};
  while (!closed_) {
    if (!reader_.read(ring)) {
      if (ending_.load()) return;
      ring.wait_readable();
      continue;
    }
    if (IntrusivePtr<RecordPayload> payload = reader_.take_payload(); payload && payload->read) answer(payload->read);
    closed_ = reader_.kind() == RecordKind::kClose;
    reader_.consume(ring);
  }
}

}  // namespace dtorch
