#include "runtime/worker/acks.h"

#include <algorithm>

namespace dtorch {

void Acks::begin(Sequence sequence, bool now) {
  std::lock_guard lock(mutex_);
  ++under_way_;
  if (!now) return;
  urgent_ = std::max(urgent_, sequence + 1);
  send();
}

void Acks::finish(Sequence sequence) {
  std::lock_guard lock(mutex_);
  finished_.push_back(sequence);
  --under_way_;
  if (under_way_ == 0 || sequence < urgent_ || finished_.size() >= kBatch ||
      std::chrono::steady_clock::now() - sent_at_ > kBatchFor) {
    send();
  }
  if (under_way_ == 0) idle_.notify_all();
}

void Acks::flush() {
  std::lock_guard lock(mutex_);
  send();
}

void Acks::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return under_way_ == 0; });
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
  control_.send(kController, encode(ack));
  sent_at_ = std::chrono::steady_clock::now();
}

}  // namespace dtorch
