// CallbackThread: runs the callbacks of futures, one after the other, on a thread that starts with the first of them.
// Thread-safe.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "runtime/base/blocking_queue.h"

namespace dtorch {

class CallbackThread {
 public:
  CallbackThread() = default;
  ~CallbackThread() { stop(); }
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  // After stop() the callback runs at once on the caller's thread. Never throws what the callback throws: that is kept.
  void post(std::function<void()> callback);
  // Throws (and forgets) the first exception that was kept.
  void throw_error();
  std::exception_ptr take_error();
  void keep_error(std::exception_ptr error);
  // Runs what is queued, then ends the thread. Idempotent. Called from a callback it only ends the queue.
  void stop();

 private:
  void run_one(const std::function<void()>& callback);
  std::mutex mutex_;
  std::thread thread_;        // under mutex_
  bool stopped_ = false;      // under mutex_
  std::exception_ptr error_;  // under mutex_
  std::atomic<bool> has_error_{false};
  BlockingQueue<std::function<void()>> queue_;
};

}  // namespace dtorch
