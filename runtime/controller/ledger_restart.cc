// Ledger: what changes when work is done again, in another epoch.
#include "runtime/base/error.h"
#include "runtime/controller/ledger.h"
#include "runtime/controller/read_checks.h"

namespace dtorch {

Sequence Ledger::first_unsettled() const {
  std::lock_guard lock(mutex_);
  return first_;
}

bool Ledger::is_acknowledged(Sequence sequence) const {
  std::lock_guard lock(mutex_);
  if (sequence < first_) return true;
  const Sequence index = sequence - first_;
  return index < entries_.size() && (entries_[index] == nullptr || entries_[index]->acks_missing == 0);
}

void Ledger::expect_acks(LedgerEntry& entry) const {
  entry.acknowledged.assign(static_cast<size_t>(num_nodes_), false);
  entry.acks_missing = static_cast<int32_t>(route_.tree.children(kController).size());
}

// The client can't be told any more: it may have read what depends on it, as a value.
void Ledger::require_known(const ErrorReport& report) const {
  if (checks_ != nullptr && checks_->has_failed(report.sequence, report.op_index)) return;
  throw RuntimeFault("operator " + std::to_string(report.op_index) + " of piece " + std::to_string(report.sequence) +
                     " failed on device " + std::to_string(report.device) +
                     " when it was done again after a node was lost, and hadn't before: " + report.message);
}

void Ledger::restart(const Route& route, Sequence first, Sequence end) {
  std::lock_guard lock(mutex_);
  route_ = route;
  const auto now = Clock::now();
  heard_.assign(heard_.size(), now);
  for (size_t node = 0; node < latest_.size(); ++node) {
    // What it had isn't in use any more.
    if (route.tree.contains(static_cast<int32_t>(node))) continue;
    latest_[node].bytes_in_use = latest_[node].peak_bytes = 0;
    latest_[node].device_bytes_in_use.clear();
    latest_[node].device_peak_bytes.clear();
  }
  if (failure_) return;
  std::deque<std::unique_ptr<LedgerEntry>> entries;
  for (Sequence sequence = first; sequence < end; ++sequence) {
    const bool is_known = sequence >= first_ && sequence - first_ < entries_.size();
    std::unique_ptr<LedgerEntry> entry = is_known ? std::move(entries_[sequence - first_]) : nullptr;
    if (entry == nullptr) {
      entry = std::make_unique<LedgerEntry>();
      entry->sequence = sequence;
    }
    expect_acks(*entry);
    entry->sent_at = now;
    entries.push_back(std::move(entry));
  }
  entries_ = std::move(entries);
  first_ = first;
  if (checks_ != nullptr) checks_->restart();
}

}  // namespace dtorch
