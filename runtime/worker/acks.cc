#include "runtime/worker/acks.h"

#include <algorithm>
#include <string>

namespace dtorch {

void Acks::configure(int32_t parent, int32_t num_children) {
  std::lock_guard lock(mutex_);
  parent_ = parent;
  num_children_ = num_children;
}

void Acks::begin(Sequence sequence, bool now, bool statistics) {
  std::lock_guard lock(mutex_);
  ++under_way_;
  ++own_under_way_;
  if (num_children_ != 0) missing_[sequence] = num_children_ + 1;
  if (statistics && parent_ != kController) statistics_.insert(sequence);
  if (!now) return;
  urgent_ = std::max(urgent_, sequence + 1);
  send();
}

void Acks::finish(Sequence sequence) {
  std::lock_guard lock(mutex_);
  if (statistics_.erase(sequence) != 0 && !silent_) {
    Ack ack;
    fill_(ack);
    control_.send(parent_, encode(ack));
  }
  finish_one(sequence);
  if (--own_under_way_ == 0) idle_.notify_all();
}

void Acks::finish_below(const std::vector<Sequence>& sequences) {
  std::lock_guard lock(mutex_);
  for (Sequence sequence : sequences) {
    if (missing_.find(sequence) == missing_.end()) {
      throw DecodeError("a node below acknowledges piece " + std::to_string(sequence) + ", which isn't under way");
    }
    finish_one(sequence);
  }
  // The node below has collected them already, and this node's streams may be asleep.
  if (!finished_.empty()) send();
}

void Acks::finish_one(Sequence sequence) {
  if (num_children_ != 0) {
    const auto at = missing_.find(sequence);
    if (--at->second > 0) return;
    missing_.erase(at);
  }
  finished_.push_back(sequence);
  --under_way_;
  if (under_way_ == 0 || sequence < urgent_ || finished_.size() >= kBatch ||
      std::chrono::steady_clock::now() - sent_at_ > kBatchFor) {
    send();
  }
}

void Acks::flush() {
  std::lock_guard lock(mutex_);
  send();
}

void Acks::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return own_under_way_ == 0; });
}

void Acks::silence() {
  std::lock_guard lock(mutex_);
  silent_ = true;
}

void Acks::send() {
  if (finished_.empty() || silent_) return;
  Ack ack;
  ack.sequences.swap(finished_);
  fill_(ack);
  control_.send(parent_, encode(ack));
  sent_at_ = std::chrono::steady_clock::now();
}

}  // namespace dtorch
