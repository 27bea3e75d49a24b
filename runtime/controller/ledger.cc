#include "runtime/controller/ledger.h"

#include <algorithm>

namespace dtorch {

Ledger::Ledger(int32_t num_nodes, Credits& credits)
    : num_nodes_(num_nodes),
      credits_(credits),
      heard_(static_cast<size_t>(num_nodes), Clock::now()),
      latest_(static_cast<size_t>(num_nodes)) {}

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
  entry->acknowledged.assign(static_cast<size_t>(num_nodes_), false);
  entry->acks_missing = num_nodes_;
  entry->sent_at = Clock::now();
  for (const LedgerRead& read : entry->reads) {
    const bool is_new = reads_.try_emplace(read.number, WaitingRead{read.state, false}).second;
    DTORCH_CHECK(is_new, "two reads have the number " + std::to_string(read.number));
    num_reads_.fetch_add(1);
    ++totals_.reads;
  }
  totals_.operators += static_cast<int64_t>(std::count_if(entry->graph.operators.begin(), entry->graph.operators.end(),
                                                          [](const Operator& op) { return op.spec != kReleaseSpec; }));
  ++totals_.pieces;
  entry->stream->pieces_in_flight.fetch_add(1);
  entry->stream->unsettled.push_back(entry.get());
  entries_.push_back(std::move(entry));
  return true;
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
  if (entry == nullptr || entry->acknowledged[static_cast<size_t>(node)]) {
    throw RuntimeFault("node " + std::to_string(node) + " " + what + " piece " + std::to_string(sequence) +
                       ", which it doesn't hold");
  }
  return *entry;
}

void Ledger::on_heard(int32_t node) {
  std::lock_guard lock(mutex_);
  check_node(node);
  heard_[static_cast<size_t>(node)] = Clock::now();
}

void Ledger::on_ack(const Ack& ack) {
  Deliveries deliveries;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    check_node(ack.node);
    latest_[static_cast<size_t>(ack.node)] = ack;
    latest_[static_cast<size_t>(ack.node)].sequences.clear();
    for (Sequence sequence : ack.sequences)
      acknowledge(in_flight(sequence, ack.node, "acknowledges"), ack.node, deliveries);
    while (!entries_.empty() && entries_.front() == nullptr) {
      entries_.pop_front();
      ++first_;
    }
  }
  deliver(deliveries);
}

void Ledger::acknowledge(LedgerEntry& entry, int32_t node, Deliveries& out) {
  entry.acknowledged[static_cast<size_t>(node)] = true;
  if (--entry.acks_missing > 0) return;
  GraphStream& stream = *entry.stream;
  credits_.give_back(entry.num_operators, entry.num_bytes);
  stream.pieces_in_flight.fetch_sub(1);
  if (stream.wants_wakeup.load()) stream.link->ring.wake_consumer();
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
  for (const auto& [index, cause] : entry.errors) entry.stream->unread.push_back(cause);
  for (uint32_t i = 0; i < entry.graph.operators.size(); ++i) {
    const Operator& op = entry.graph.operators[i];
    CausePtr cause;
    if (auto own = entry.errors.find(i); own != entry.errors.end()) cause = own->second;
    for (OperandId input : entry.graph.inputs(op)) {
      auto tainted = taint.find(input & kMaxOperand);
      if (tainted == taint.end()) continue;
      if (cause == nullptr || *tainted->second < *cause) cause = tainted->second;
      if (op.spec == kReleaseSpec || (input & kLastUse) != 0) taint.erase(tainted);
    }
    if (op.spec == kReleaseSpec) continue;
    for (OperandId output : entry.graph.outputs(op)) {
      if (cause) {
        taint[output] = cause;
      } else {
        taint.erase(output);
      }
    }
    const bool is_read = std::any_of(entry.reads.begin(), entry.reads.end(), [&](const LedgerRead& read) {
      return op.num_scalars > 0 && read.number == entry.graph.scalars_of(op)[0].bits;
    });
    if (cause && is_read) reached[entry.graph.scalars_of(op)[0].bits] = cause;
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
  if (failure_) return;
  check_node(report.node);
  LedgerEntry& entry = in_flight(report.sequence, report.node, "reports an error of");
  if (report.op_index >= entry.graph.operators.size()) {
    throw RuntimeFault("node " + std::to_string(report.node) + " reports an error of operator " +
                       std::to_string(report.op_index) + " of a piece of " +
                       std::to_string(entry.graph.operators.size()));
  }
  const SourceLine& where = entry.graph.source_lines[report.op_index];
  auto cause = std::make_shared<Cause>();
  cause->sequence = report.sequence;
  cause->op_index = report.op_index;
  cause->device = report.device;
  std::string text = std::string("[") + entry.stream->specs.op_name(entry.graph.operators[report.op_index].spec) +
                     "] failed on node " + std::to_string(report.node) + " device " + std::to_string(report.device) +
                     ": " + report.message;
  if (where.line != 0) text += "; called at " + where.str();
  cause->error = std::make_exception_ptr(RuntimeFault(text));
  CausePtr& kept = entry.errors[report.op_index];
  if (kept == nullptr || report.device < kept->device)
    kept = std::move(cause);  // whichever comes first, the text is the same
}

void Ledger::on_read_data(const ReadData& data, const SharedBytes& payload) {
  IntrusivePtr<ReadState> state;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    check_node(data.node);
    auto read = reads_.find(data.read);
    // A read that has failed already isn't kept.
    if (read == reads_.end()) return;
    state = read->second.state;
  }
  const bool has_bytes = payload != nullptr;
  state->add_box(data.box, has_bytes ? payload->data() : nullptr, has_bytes ? payload->size() : 0);
  {
    std::lock_guard lock(mutex_);
    auto read = reads_.find(data.read);
    if (read == reads_.end() || !read->second.settled || !state->has_all_data()) return;
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
}

std::exception_ptr Ledger::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::string Ledger::describe(const LedgerEntry& entry) const {
  for (size_t i = 0; i < entry.graph.operators.size(); ++i) {
    if (entry.graph.operators[i].spec == kReleaseSpec) continue;
    std::string text = std::string("[") + entry.stream->specs.op_name(entry.graph.operators[i].spec) + "]";
    if (entry.graph.source_lines[i].line != 0) text += " called at " + entry.graph.source_lines[i].str();
    return text + ", " + std::to_string(entry.graph.operators.size() - i - 1) + " more after it";
  }
  return "piece " + std::to_string(entry.sequence);
}

Ledger::Silence Ledger::longest_silence(Clock::time_point now) const {
  std::lock_guard lock(mutex_);
  Silence longest;
  std::vector<bool> seen(static_cast<size_t>(num_nodes_), false);
  for (const auto& entry : entries_) {
    if (entry == nullptr) continue;
    for (int32_t node = 0; node < num_nodes_; ++node) {
      const auto n = static_cast<size_t>(node);
      if (entry->acknowledged[n] || seen[n]) continue;
      seen[n] = true;  // the oldest piece that it owes
      const auto since = now - std::max(heard_[n], entry->sent_at);
      if (longest.node >= 0 && since <= longest.since) continue;
      longest = {node, since, describe(*entry)};
    }
    if (std::all_of(seen.begin(), seen.end(), [](bool s) { return s; })) break;
  }
  return longest;
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

void Ledger::add_device_memory(const DeviceBinding& binding, ClientStats& stats) const {
  const auto num_devices = static_cast<size_t>(binding.num_devices());
  stats.bytes_in_use_per_device.assign(num_devices, 0);
  stats.peak_bytes_per_device.assign(num_devices, 0);
  std::vector<std::vector<int64_t>> devices(static_cast<size_t>(num_nodes_));  // by node, in the order of their slots
  for (int64_t device = 0; device < binding.num_devices(); ++device)
    devices[static_cast<size_t>(binding.node_of(device))].push_back(device);
  std::lock_guard lock(mutex_);
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
