#include "runtime/controller/eager_graph_executor.h"

#include <algorithm>

namespace dtorch {

namespace {

// A piece isn't longer than this in operands either, so that a stream of releases is sent now and then.
constexpr size_t kMaxPieceOperands = 1 << 15;

}  // namespace

EagerGraphExecutor::EagerGraphExecutor(std::shared_ptr<GraphLink> link, Ledger& ledger, Sequencer& sequencer,
                                       Credits& credits, PassList passes)
    : stream_(std::move(link)),
      ledger_(ledger),
      sequencer_(sequencer),
      passes_(std::move(passes)),
      max_piece_operators_(std::clamp<int64_t>(credits.max_operators() / 4, 1, kMaxSubgraph)),
      max_piece_bytes_(credits.max_bytes() / 4) {
  ledger_.add_stream(stream_);
  thread_ = std::thread([this] { loop(); });
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

void EagerGraphExecutor::loop() {
  try {
    take_records();
  } catch (...) {
    ledger_.fail_all(std::current_exception());
  }
  if (!closed_) answer_with_failure();
  stream_.link->ring.close();
}

void EagerGraphExecutor::take_records() {
  SpscRing<Cell>& ring = stream_.link->ring;
  while (!closed_ && !ledger_.has_failed()) {
    if (reader_.read(ring)) {
      take_record();
      continue;
    }
    if (!draft_.graph.empty()) {
      stream_.wants_wakeup.store(true);  // before the look at what is in flight, so that no wake-up is missed
      if (idles()) {
        stream_.wants_wakeup.store(false);
        send_piece();
        continue;
      }
    }
    ring.wait_readable();
    stream_.wants_wakeup.store(false);
  }
}

void EagerGraphExecutor::take_record() {
  const RecordKind kind = reader_.kind();
  if (!reader_.releases().empty()) {
    LogicalGraph& graph = draft_.graph;
    for (OperandId slot : reader_.releases()) {
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
  bool boundary = kind != RecordKind::kOperator;
  if (kind == RecordKind::kOperator && reader_.spec() != nullptr) {
    take_operator(reader_);
    boundary = stream_.specs.at(reader_.spec()->id).ends_subgraph || ++subgraph_operators_ >= kMaxSubgraph;
  } else if (IntrusivePtr<RecordPayload> payload = reader_.take_payload(); payload && payload->read) {
    draft_.barriers.push_back(payload->read);
    draft_.wants_ack_now = true;
  }
  if (kind == RecordKind::kClose) {
    closed_ = true;
    draft_.wants_ack_now = true;
  }
  reader_.consume(stream_.link->ring);
  if (boundary) subgraph_operators_ = 0;
  if (boundary || draft_.num_operators >= max_piece_operators_ || draft_.num_bytes >= max_piece_bytes_ ||
      draft_.graph.operands.size() >= kMaxPieceOperands) {
    send_piece();
  }
}

void EagerGraphExecutor::take_operator(const RecordReader& record) {
  LogicalGraph& graph = draft_.graph;
  const IntrusivePtr<RecordPayload> payload = record.take_payload();
  const bool has_feed = payload && payload->feed.defined();
  const SpecInfo& info = stream_.specs.find_or_add(*record.spec(), has_feed);
  if (info.is_read || has_feed) DTORCH_CHECK(!record.scalars().empty(), "a read or feed without its number");
  graph.operators.push_back({.spec = record.spec()->id,
                             .first_operand = static_cast<uint32_t>(graph.operands.size()),
                             .first_scalar = static_cast<uint32_t>(graph.scalars.size()),
                             .num_inputs = static_cast<uint16_t>(record.inputs().size()),
                             .num_outputs = static_cast<uint16_t>(record.outputs().size()),
                             .num_scalars = static_cast<uint16_t>(record.scalars().size())});
  graph.operands.insert(graph.operands.end(), record.inputs().begin(), record.inputs().end());
  graph.operands.insert(graph.operands.end(), record.outputs().begin(), record.outputs().end());
  graph.scalars.insert(graph.scalars.end(), record.scalars().begin(), record.scalars().end());
  graph.source_lines.push_back(record.where());
  if (payload && payload->read) {
    draft_.reads.push_back({record.scalars()[0].bits, payload->read});
    draft_.wants_ack_now = true;
  }
  if (has_feed) {
    draft_.feeds.push_back(
        {record.scalars()[0].bits, payload->feed.shared_bytes(), info.spec->outputs.at(0)->layout.mesh()});
    draft_.num_bytes += payload->feed.num_bytes();
  }
  if (!info.is_read) {
    ++draft_.num_operators;
    draft_.num_bytes += info.output_bytes;
  }
}

void EagerGraphExecutor::finish_draft() {
  for (const auto& pass : passes_) pass->run(draft_.graph, {stream_.specs});
  for (const Operator& op : draft_.graph.operators) {
    if (op.spec == kReleaseSpec) continue;
    SpecInfo& info = stream_.specs.at(op.spec);
    if (info.moves_data) ++draft_.num_transfers;
    if (info.defined_on_nodes) continue;
    info.defined_on_nodes = true;
    draft_.new_specs.push_back(*info.spec);
  }
}

void EagerGraphExecutor::send_piece() {
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
