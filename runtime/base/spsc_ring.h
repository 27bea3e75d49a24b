// A bounded queue of plain cells for one producer and one consumer thread. The producer blocks when it is full (the
// credit limit of a Graph), the consumer when it is empty; both yield briefly, then sleep. Several cells may be written
// and published at once, so that a record of several cells is seen whole.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "runtime/base/error.h"

namespace dtorch {

template <class T>
class SpscRing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // capacity: a power of two, in cells.
  explicit SpscRing(size_t capacity) : cells_(capacity), mask_(capacity - 1) {
    DTORCH_CHECK(capacity != 0 && (capacity & mask_) == 0, "the capacity of a ring must be a power of two");
  }
  size_t capacity() const { return cells_.size(); }

  // --- producer
  // -------------------------------------------------------------------------------------------------------------
  // Blocks until `count` cells (at most capacity()) are free. Returns false when the consumer has closed the ring and
  // they aren't.
  bool reserve(size_t count) {
    if (write_ + count - cached_read_ <= cells_.size()) return true;
    return reserve_slow(count);
  }
  // i-th of the reserved cells.
  T& reserved(size_t i) { return cells_[(write_ + i) & mask_]; }
  // Makes `count` reserved cells visible to the consumer.
  void publish(size_t count) {
    write_ += count;
    published_.store(write_, std::memory_order_seq_cst);
    if (consumer_sleeps_.load(std::memory_order_seq_cst)) wake();
  }

  // --- consumer
  // -------------------------------------------------------------------------------------------------------------
  // Number of cells that can be read now, without blocking.
  size_t readable() const { return published_.load(std::memory_order_acquire) - read_; }
  const T& peek(size_t i) const { return cells_[(read_ + i) & mask_]; }
  void consume(size_t count) {
    read_ += count;
    consumed_.store(read_, std::memory_order_seq_cst);
    if (producer_sleeps_.load(std::memory_order_seq_cst)) wake();
  }
  // Yields for a short while, then sleeps until something is readable or wake_consumer() is called.
  void wait_readable(int spins = 200) {
    for (int i = 0; i < spins; ++i) {
      if (readable() != 0) return;
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex_);
    consumer_sleeps_.store(true, std::memory_order_seq_cst);
    wakeup_.wait(
        lock, [&] { return published_.load(std::memory_order_seq_cst) != read_ || consumer_woken_ || closed_.load(); });
    consumer_woken_ = false;
    consumer_sleeps_.store(false, std::memory_order_relaxed);
  }
  // From any thread: makes a sleeping (or the next) wait_readable return.
  void wake_consumer() {
    std::lock_guard lock(mutex_);
    consumer_woken_ = true;
    wakeup_.notify_all();
  }
  // The consumer has ended: a blocked reserve() returns false, a later one at the latest when the ring is full.
  void close() {
    std::lock_guard lock(mutex_);
    closed_.store(true);
    wakeup_.notify_all();
  }
  bool closed() const { return closed_.load(); }

 private:
  bool reserve_slow(size_t count) {
    auto fits = [&] {
      cached_read_ = consumed_.load(std::memory_order_seq_cst);
      return write_ + count - cached_read_ <= cells_.size();
    };
    DTORCH_CHECK(count <= cells_.size(), "a record is larger than the ring");
    if (closed_.load()) return false;
    if (fits()) return true;
    for (int i = 0; i < 100; ++i) {
      std::this_thread::yield();
      if (fits()) return true;
      if (closed_.load()) return false;
    }
    std::unique_lock lock(mutex_);
    producer_sleeps_.store(true, std::memory_order_seq_cst);
    wakeup_.wait(lock, [&] { return fits() || closed_.load(); });
    producer_sleeps_.store(false, std::memory_order_relaxed);
    return !closed_.load();
  }
  void wake() {
    std::lock_guard lock(mutex_);
    wakeup_.notify_all();
  }

  std::vector<T> cells_;
  const size_t mask_;
  alignas(64) size_t write_ = 0;  // producer's
  size_t cached_read_ = 0;        // producer's view of consumed_
  alignas(64) size_t read_ = 0;   // consumer's
  alignas(64) std::atomic<size_t> published_{0};
  std::atomic<bool> consumer_sleeps_{false};
  alignas(64) std::atomic<size_t> consumed_{0};
  std::atomic<bool> producer_sleeps_{false};
  std::mutex mutex_;
  std::condition_variable wakeup_;
  bool consumer_woken_ = false;  // under mutex_
  std::atomic<bool> closed_{false};
};

}  // namespace dtorch
