#include "runtime/client/callback_thread.h"

#include <utility>

namespace dtorch {

void CallbackThread::run_one(const std::function<void()>& callback) {
  try {
    callback();
  } catch (...) {
    keep_error(std::current_exception());
  }
}

void CallbackThread::post(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_) {
      queue_.push(std::move(callback));
      if (!thread_.joinable()) {
        thread_ = std::thread([this] {
          while (auto next = queue_.pop()) run_one(*next);
        });
      }
      return;
    }
  }
  run_one(callback);
}

void CallbackThread::keep_error(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  has_error_.store(true, std::memory_order_release);
}

std::exception_ptr CallbackThread::take_error() {
  if (!has_error_.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(mutex_);
  has_error_.store(false, std::memory_order_relaxed);
  return std::exchange(error_, nullptr);
}

void CallbackThread::throw_error() {
  if (std::exception_ptr error = take_error()) std::rethrow_exception(error);
}

void CallbackThread::stop() {
  std::thread ending;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    queue_.close();
    if (thread_.joinable() && thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      ending = std::move(thread_);
    }
  }
  if (ending.joinable()) ending.join();
}

}  // namespace dtorch
