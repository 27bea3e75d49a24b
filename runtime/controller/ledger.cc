#include "runtime/controller/ledger.h"

#include <algorithm>
#include <utility>

#include "runtime/controller/read_checks.h"

namespace dtorch {

namespace {

constexpr size_t kLargestInAnError = 8;  // tensors that an error for want of memory shows

}  // namespace

Ledger::Ledger(const Route& route, Credits& credits, ReadChecks* reads)
    : credits_(credits),
      checks_(reads),
      num_nodes_(route.binding.num_nodes),
      route_(route),
      heard_(static_cast<size_t>(num_nodes_), Clock::now()),
      latest_(static_cast<size_t>(num_nodes_)) {}

void Ledger::deliver(const Deliveries& deliveries) {
  for (const Delivery& delivery : deliveries) {
    if (delivery.error) {
      delivery.state->fail(delivery.error);
    } else {
      delivery.state->complete();
    }
  }
}

void Ledger::add_stream(GraphStream& stream) {
  Deliveries deliveries;
  {
    std::lock_guard lock(mutex_);
    streams_.push_back(&stream);
    if (failure_) fail_stream(stream, deliveries);
  }
  deliver(deliveries);
}

void Ledger::remove_stream(GraphStream& stream) {
  std::lock_guard lock(mutex_);
  std::erase(streams_, &stream);
}

bool Ledger::enter(std::unique_ptr<LedgerEntry> entry) {
  std::unique_lock lock(mutex_);
  if (failure_) {
    Deliveries deliveries;
    for (const LedgerRead& read : entry->reads) deliveries.push_back({read.state, failure_});
    for (const auto& barrier : entry->barriers) deliveries.push_back({barrier, failure_});
    lock.unlock();
    deliver(deliveries);
    return false;
  }
  if (entries_.empty()) first_ = entry->sequence;
  DTORCH_CHECK(entry->sequence == first_ + entries_.size(), "pieces must be entered in order");
  expect_acks(*entry);
  entry->sent_at = Clock::now();
  if (trace_book_ != nullptr)
    trace_book_->add(entry->stream->link->id, entry->sequence, entry->calls(), entry->stream->specs);
  for (const LedgerRead& read : entry->reads) {
    const bool is_new = reads_.try_emplace(read.number, WaitingRead{read.state, false}).second;
    DTORCH_CHECK(is_new, "two reads have the number " + std::to_string(read.number));
    num_reads_.fetch_add(1);
    ++totals_.reads;
  }
  if (entry->replay != nullptr) {
    const int64_t operators = entry->replay->sums().operators;
    totals_.operators += operators;
    templates_.template_operators += operators;
    ++templates_.template_replays;
  } else {
    totals_.operators += std::count_if(entry->graph.operators.begin(), entry->graph.operators.end(),
                                       [](const Operator& op) { return op.is_call(); });
  }
  ++totals_.pieces;
  entry->stream->pieces_in_flight.fetch_add(1);
  entry->stream->unsettled.push_back(entry.get());
  entries_.push_back(std::move(entry));
  return true;
}

void Ledger::count_template() {
  std::lock_guard lock(mutex_);
  ++templates_.templates_defined;
}

void Ledger::count_template_break() {
  std::lock_guard lock(mutex_);
  ++templates_.template_breaks;
}

void Ledger::wait_settled(GraphStream& stream) {
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [&] { return stream.unsettled.empty() || failure_ != nullptr; });
}

void Ledger::check_node(int32_t node) const {
  if (node < 0 || node >= num_nodes_) {
    throw RuntimeFault("a message names node " + std::to_string(node) + "; there are " + std::to_string(num_nodes_));
  }
}

LedgerEntry& Ledger::in_flight(Sequence sequence, int32_t node, const char* what) {
  const Sequence index = sequence - first_;
  LedgerEntry* entry = sequence >= first_ && index < entries_.size() ? entries_[index].get() : nullptr;
  if (entry == nullptr || entry->acknowledged[static_cast<size_t>(route_.tree.branch_of(node))]) {
    throw RuntimeFault("node " + std::to_string(node) + " " + what + " piece " + std::to_string(sequence) +
                       ", which it doesn't hold");
  }
  return *entry;
}

void Ledger::on_heard(int32_t node) {
  std::lock_guard lock(mutex_);
  check_node(node);
  heard_[static_cast<size_t>(route_.tree.branch_of(node))] = Clock::now();
}

void Ledger::on_ack(Ack ack) {
  Deliveries deliveries;
  {
    std::lock_guard lock(mutex_);
    if (failure_ || ack.epoch != route_.epoch) return;
    check_node(ack.node);
    const int32_t node = ack.node;
    const std::vector<Sequence> sequences = std::move(ack.sequences);
    ack.sequences.clear();
    Ack& latest = latest_[static_cast<size_t>(node)];
    // A node of very many devices tells of each only when statistics are wanted.
    if (ack.device_bytes_in_use.empty()) {
      ack.device_bytes_in_use = std::move(latest.device_bytes_in_use);
      ack.device_peak_bytes = std::move(latest.device_peak_bytes);
    }
    latest = std::move(ack);
    for (Sequence sequence : sequences) acknowledge(in_flight(sequence, node, "acknowledges"), node, deliveries);
    while (!entries_.empty() && entries_.front() == nullptr) {
      entries_.pop_front();
      ++first_;
    }
  }
  deliver(deliveries);
}

void Ledger::acknowledge(LedgerEntry& entry, int32_t node, Deliveries& out) {
  entry.acknowledged[static_cast<size_t>(route_.tree.branch_of(node))] = true;
  if (--entry.acks_missing > 0) return;
  if (entry.stream == nullptr) {
    entries_[entry.sequence - first_].reset();
    return;
  }
  GraphStream& stream = *entry.stream;
  if (std::exchange(entry.is_in_flight, false)) {
    credits_.give_back(entry.num_operators, entry.num_bytes);
    stream.pieces_in_flight.fetch_sub(1);
    if (stream.wants_wakeup.load()) stream.link->ring.wake_consumer();
  }
  while (!stream.unsettled.empty() && stream.unsettled.front()->acks_missing == 0) {
    LedgerEntry& front = *stream.unsettled.front();
    stream.unsettled.pop_front();
    settle(front, out);
    entries_[front.sequence - first_].reset();
  }
  if (stream.unsettled.empty()) settled_.notify_all();
}

void Ledger::settle(LedgerEntry& entry, Deliveries& out) {
  GraphStream& stream = *entry.stream;
  entry.replay ? stream.origins.note(*entry.replay) : stream.origins.note(entry.graph);
  std::unordered_map<uint64_t, CausePtr> reached;
  if (!entry.errors.empty() || !stream.taint.empty()) reached = follow_taint(entry);
  for (const LedgerRead& read : entry.reads) {
    auto cause = reached.find(read.number);
    finish_read(stream, read, cause == reached.end() ? nullptr : cause->second, out);
  }
  refresh_unread(stream, nullptr);
  for (const auto& barrier : entry.barriers) out.push_back({barrier, nullptr});
}

std::unordered_map<uint64_t, CausePtr> Ledger::follow_taint(LedgerEntry& entry) {
  std::unordered_map<uint64_t, CausePtr> reached;
  auto& taint = entry.stream->taint;
  const LogicalGraph& graph = entry.calls();
  for (uint32_t i = 0; i < graph.operators.size(); ++i) {
    const Operator& op = graph.operators[i];
    CausePtr own;
    if (const auto found = entry.errors.find(i); found != entry.errors.end()) own = found->second;
    CausePtr cause = own;
    for (OperandId input : graph.inputs(op)) {
      auto tainted = taint.find(input & kMaxOperand);
      if (tainted == taint.end()) continue;
      if (cause == nullptr || *tainted->second < *cause) cause = tainted->second;
      if (op.spec == kReleaseSpec || (input & kLastUse) != 0) taint.erase(tainted);
    }
    if (op.spec == kReleaseSpec) continue;
    // What an accelerator makes of what an earlier failure left may fail, too; that is the earlier one's matter.
    if (own && cause == own) entry.stream->unread.push_back(own);
    for (OperandId output : graph.outputs(op)) {
      if (cause) {
        taint[output] = cause;
      } else {
        taint.erase(output);
      }
    }
    const bool is_read = std::any_of(entry.reads.begin(), entry.reads.end(), [&](const LedgerRead& read) {
      return op.num_scalars > 0 && read.number == graph.scalars_of(op)[0].bits;
    });
    if (cause && is_read) reached[graph.scalars_of(op)[0].bits] = cause;
  }
  return reached;
}

void Ledger::finish_read(GraphStream& stream, const LedgerRead& read, const CausePtr& cause, Deliveries& out) {
  if (cause) {
    out.push_back({read.state, cause->error});
    refresh_unread(stream, cause);
  } else if (!read.state->has_all_data()) {
    reads_[read.number].settled = true;
    return;
  } else {
    out.push_back({read.state, nullptr});
  }
  if (checks_ != nullptr) checks_->deliver(read.number, cause != nullptr);
  reads_.erase(read.number);
  num_reads_.fetch_sub(1);
}

void Ledger::refresh_unread(GraphStream& stream, const CausePtr& delivered) {
  if (stream.unread.empty()) return;
  GraphLink& link = *stream.link;
  std::lock_guard lock(link.failure_mutex);
  if (stream.shown != nullptr && link.unread_failure == nullptr) {  // the client has thrown it
    std::erase(stream.unread, stream.shown);
    stream.shown = nullptr;
  }
  if (delivered != nullptr) std::erase(stream.unread, delivered);
  if (stream.shown != nullptr && stream.shown == delivered) {
    link.unread_failure = nullptr;
    stream.shown = nullptr;
  }
  if (stream.shown == nullptr && !stream.unread.empty()) {
    stream.shown = stream.unread.front();
    link.unread_failure = stream.shown->error;
  }
}

void Ledger::on_error(const ErrorReport& report) {
  std::lock_guard lock(mutex_);
  if (failure_ || report.epoch != route_.epoch) return;
  check_node(report.node);
  LedgerEntry& entry = in_flight(report.sequence, report.node, "reports an error of");
  if (entry.stream == nullptr) return require_known(report);
  if (checks_ != nullptr) checks_->note_failure(report.sequence, report.op_index);
  const LogicalGraph& graph = entry.calls();
  if (report.op_index >= graph.operators.size()) {
    throw RuntimeFault("node " + std::to_string(report.node) + " reports an error of operator " +
                       std::to_string(report.op_index) + " of a piece of " + std::to_string(graph.operators.size()));
  }
  const SourceLine& where = graph.source_lines[report.op_index];
  auto cause = std::make_shared<Cause>();
  cause->sequence = report.sequence;
  cause->op_index = report.op_index;
  cause->device = report.device;
  std::string text = std::string("[") + entry.stream->specs.op_name(graph.operators[report.op_index].spec) +
                     "] failed on node " + std::to_string(report.node) + " device " + std::to_string(report.device) +
                     ": " + report.message;
  if (where.line != 0) text += "; called at " + where.str();
  if (report.memory)
    text += "\n" + memory_text(*report.memory, {report.sequence, report.op_index}, kLargestInAnError, {});
  cause->error = std::make_exception_ptr(RuntimeFault(text));
  CausePtr& kept = entry.errors[report.op_index];
  if (kept == nullptr || report.device < kept->device)
    kept = std::move(cause);  // whichever comes first, the text is the same
}

void Ledger::on_read_data(const ReadData& data, const SharedBytes& payload) {
  IntrusivePtr<ReadState> state;
  {
    std::lock_guard lock(mutex_);
    if (failure_ || data.epoch != route_.epoch) return;
    check_node(data.node);
    auto read = reads_.find(data.read);
    if (read != reads_.end()) state = read->second.state;
  }
  std::vector<ReadChecks::ReadBox> boxes{{data.box, payload}};
  if (checks_ != nullptr)
    boxes = checks_->add_box(data.read, boxes.front(), state ? state->region().num_elements() : 0);
  // A read that has failed already isn't kept.
  if (!state) return;
  for (const auto& [box, packed] : boxes)
    state->add_box(box, packed ? packed->data() : nullptr, packed ? packed->size() : 0);
  {
    std::lock_guard lock(mutex_);
    auto read = reads_.find(data.read);
    if (read == reads_.end() || !read->second.settled || !state->has_all_data()) return;
    if (checks_ != nullptr) checks_->deliver(data.read, false);
    reads_.erase(read);
    num_reads_.fetch_sub(1);
  }
  state->complete();
}

void Ledger::fail_stream(GraphStream& stream, Deliveries& out) {
  for (LedgerEntry* entry : stream.unsettled) {
    for (const auto& barrier : entry->barriers) out.push_back({barrier, failure_});
  }
  stream.unsettled.clear();
  {
    std::lock_guard lock(stream.link->failure_mutex);
    if (!stream.link->failure) stream.link->failure = failure_;
  }
  stream.link->failed.store(true);
  stream.link->ring.wake_consumer();
}

void Ledger::fail_all(std::exception_ptr error) {
  Deliveries deliveries;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
    failed_.store(true);
    for (GraphStream* stream : streams_) fail_stream(*stream, deliveries);
    for (const auto& [number, read] : reads_) deliveries.push_back({read.state, error});
    reads_.clear();
    num_reads_.store(0);
    entries_.clear();
    settled_.notify_all();
  }
  credits_.close();
  deliver(deliveries);
  if (on_failure_) on_failure_();
}

std::exception_ptr Ledger::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

RuntimeStats Ledger::stats() const {
  std::lock_guard lock(mutex_);
  RuntimeStats stats = totals_;
  for (const Ack& ack : latest_) {
    stats.data_messages += ack.data_messages_sent;
    stats.data_bytes += ack.data_bytes_sent;
    stats.kernels_run += ack.kernels_run;
    stats.bytes_in_use_per_node.push_back(ack.bytes_in_use);
    stats.peak_bytes_per_node.push_back(ack.peak_bytes);
  }
  return stats;
}

TemplateStats Ledger::template_stats() const {
  std::lock_guard lock(mutex_);
  TemplateStats stats = templates_;
  DeviceGraphStats& graphs = stats.device_graphs;
  for (const Ack& ack : latest_) {
    graphs.captured += ack.device_graphs.captured;
    graphs.launched += ack.device_graphs.launched;
    graphs.kernels += ack.device_graphs.kernels;
    for (size_t i = 0; i < kNumGraphFallbacks; ++i) graphs.fallbacks[i] += ack.device_graphs.fallbacks[i];
  }
  return stats;
}

void Ledger::add_device_memory(ClientStats& stats) const {
  std::lock_guard lock(mutex_);
  const DeviceBinding& binding = route_.binding;
  const auto num_devices = static_cast<size_t>(binding.num_devices());
  stats.bytes_in_use_per_device.assign(num_devices, 0);
  stats.peak_bytes_per_device.assign(num_devices, 0);
  std::vector<std::vector<int64_t>> devices(static_cast<size_t>(num_nodes_));  // by node, in the order of their slots
  for (int64_t device = 0; device < binding.num_devices(); ++device)
    devices[static_cast<size_t>(binding.node_of(device))].push_back(device);
  for (size_t node = 0; node < devices.size(); ++node) {
    std::sort(devices[node].begin(), devices[node].end(),
              [&](int64_t a, int64_t b) { return binding.slot_of(a) < binding.slot_of(b); });
    const Ack& ack = latest_[node];
    for (size_t i = 0; i < devices[node].size() && i < ack.device_bytes_in_use.size(); ++i) {
      stats.bytes_in_use_per_device[static_cast<size_t>(devices[node][i])] = ack.device_bytes_in_use[i];
      stats.peak_bytes_per_device[static_cast<size_t>(devices[node][i])] = ack.device_peak_bytes[i];
    }
  }
}

void Ledger::reset_peaks() {
  std::lock_guard lock(mutex_);
  for (Ack& ack : latest_) {
    ack.device_peak_bytes = ack.device_bytes_in_use;
    ack.peak_bytes = 0;
    for (int64_t bytes : ack.device_peak_bytes) ack.peak_bytes = std::max(ack.peak_bytes, bytes);
  }
}

}  // namespace dtorch
