// An unbounded queue for any number of producers and consumers. Items that were pushed before or after close() are
// still delivered. Waits without spinning.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace dtorch {

template <class T>
class BlockingQueue {
 public:
  void push(T item) {
    {
      std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    wakeup_.notify_one();
  }
  // Waits for an item; nullopt when the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    wakeup_.wait(lock, [&] { return !items_.empty() || closed_; });
    return take();
  }
  std::optional<T> pop_for(std::chrono::nanoseconds timeout) {
    std::unique_lock lock(mutex_);
    wakeup_.wait_for(lock, timeout, [&] { return !items_.empty() || closed_; });
    return take();
  }
  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take();
  }
  bool empty() const {
    std::lock_guard lock(mutex_);
    return items_.empty();
  }
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    wakeup_.notify_all();
  }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }
  mutable std::mutex mutex_;
  std::condition_variable wakeup_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace dtorch
