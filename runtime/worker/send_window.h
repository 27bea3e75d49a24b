// SendWindow: how much may be under way to other nodes at once, so that what is packed to be sent isn't all in memory
// at the same time. A message counts until the channel has let go of its head. Thread-safe.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/graph/messages.h"

namespace dtorch {

class SendWindow {
 public:
  explicit SendWindow(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Blocks while the limit or more is under way. False: closed.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_closed_ || bytes_ < limit_bytes_; });
    return !is_closed_;
  }
  bool has_room() const {
    std::lock_guard lock(mutex_);
    return bytes_ < limit_bytes_;
  }
  // Nobody waits any more: what is under way to a lost node may never leave.
  void close() {
    {
      std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_all();
  }
  // The message, which counts from here on with all of its bytes.
  static Message counted(std::shared_ptr<SendWindow> window, Message message) {
    const auto bytes =
        static_cast<int64_t>(message.head->size() + (message.payload != nullptr ? message.payload->size() : 0));
    window->add(bytes);
    const Bytes* const head = message.head.get();
    const auto let_go = [window = std::move(window), kept = std::move(message.head), bytes](const Bytes*) {
      window->add(-bytes);
    };
    message.head = SharedBytes(head, let_go);
    return message;
  }

 private:
  void add(int64_t bytes) {
    {
      std::lock_guard lock(mutex_);
      bytes_ += bytes;
    }
    changed_.notify_all();
  }

  const int64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t bytes_ = 0;  // under mutex_, as the next
  bool is_closed_ = false;
};

}  // namespace dtorch
