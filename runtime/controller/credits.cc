#include "runtime/controller/credits.h"

namespace dtorch {

bool Credits::take(int64_t num_operators, int64_t num_bytes) {
  if (num_operators == 0 && num_bytes == 0) return true;
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  changed_.wait(lock, [&] {
    if (closed_) return true;
    if (ticket != serving_) return false;
    const bool idle = operators_ == 0 && bytes_ == 0;
    return idle || (operators_ + num_operators <= max_operators_ && bytes_ + num_bytes <= max_bytes_);
  });
  if (closed_) return false;
  operators_ += num_operators;
  bytes_ += num_bytes;
  ++serving_;
  if (serving_ != next_ticket_) changed_.notify_all();
  return true;
}

void Credits::give_back(int64_t num_operators, int64_t num_bytes) {
  std::lock_guard lock(mutex_);
  operators_ -= num_operators;
  bytes_ -= num_bytes;
  if (serving_ != next_ticket_) changed_.notify_all();
}

void Credits::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

int64_t Credits::operators_in_flight() const {
  std::lock_guard lock(mutex_);
  return operators_;
}

}  // namespace dtorch
