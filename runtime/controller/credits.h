// The credit limit (I7): how many operators, and how many bytes of their results and feeds, may be on their way to the
// nodes. Shared by all Graphs; thread-safe.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace dtorch {

class Credits {
 public:
  Credits(int64_t max_operators, int64_t max_bytes) : max_operators_(max_operators), max_bytes_(max_bytes) {}
  // Blocks until the limits allow it, or nothing is in flight; waiters are served in order. Taking nothing never
  // blocks. False (and nothing taken) after close().
  bool take(int64_t num_operators, int64_t num_bytes);
  void give_back(int64_t num_operators, int64_t num_bytes);
  // Nothing will come back any more: wakes all waiters.
  void close();
  int64_t max_operators() const { return max_operators_; }
  int64_t max_bytes() const { return max_bytes_; }
  int64_t operators_in_flight() const;

 private:
  const int64_t max_operators_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t operators_ = 0;
  int64_t bytes_ = 0;
  uint64_t next_ticket_ = 0;
  uint64_t serving_ = 0;
  bool closed_ = false;
};

}  // namespace dtorch
