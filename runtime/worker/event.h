// Parker: where the threads of one device sleep. Event: something that happens once, on another thread, and that a
// device's streams may wait for.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace dtorch {

// A few threads wait, each for something of its own; any thread wakes all of them. What they wait for must be visible
// through atomics (acquire / release) before wake().
class Parker {
 public:
  static constexpr std::chrono::microseconds kSpin{20};
  // Returns when ready() holds. Yields for a short while, then calls before_sleep() and sleeps.
  template <class Ready, class BeforeSleep>
  void wait(Ready ready, BeforeSleep before_sleep) {
    if (ready()) return;
    auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
      std::this_thread::yield();
      if (ready()) return;
    } while (std::chrono::steady_clock::now() < deadline);
    before_sleep();
    std::unique_lock lock(mutex_);
    // Either this thread sees what the waker wrote or the waker sees that it sleeps.
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    wakeup_.wait(lock, ready);
    asleep_.fetch_sub(1, std::memory_order_relaxed);
  }
  void wake() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_seq_cst) == 0) return;
    std::lock_guard lock(mutex_);
    wakeup_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::atomic<int> asleep_{0};
};

class Event {
 public:
  explicit Event(std::shared_ptr<Parker> waiter) : waiter_(std::move(waiter)) {}
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  void set() {
    set_.store(true, std::memory_order_release);
    waiter_->wake();
  }

 private:
  std::atomic<bool> set_{false};
  std::shared_ptr<Parker> waiter_;  // may outlive the stream that it belongs to
};

}  // namespace dtorch
