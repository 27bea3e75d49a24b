// TensorFuture: the result of a read that is under way. Copies share the state. Any thread may wait.
#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/intrusive.h"
#include "runtime/client/host_tensor.h"

namespace dtorch {

// Shared between the client (waits) and the controller (fills box by box, then completes). Thread-safe.
class ReadState : public RefCounted {
 public:
  ReadState(Shape shape, DType dtype, Box region)
      : shape_(std::move(shape)), dtype_(dtype), region_(std::move(region)) {}
  const Box& region() const { return region_; }  // what is read, in global coordinates
  DType dtype() const { return dtype_; }
  // --- controller's side ---
  // Copies one box of the value (global coordinates, packed row-major) into the result. Throws DecodeError when it
  // doesn't fit.
  void add_box(const Box& box, const std::byte* packed, size_t num_bytes);
  bool has_all_data() const;
  void complete();                      // the value is good: wake waiters, run callbacks
  void fail(std::exception_ptr error);  // the first call (complete or fail) wins
  // --- client's side ---
  bool is_ready() const;
  bool wait_for(std::chrono::nanoseconds timeout) const;
  void wait() const;       // blocks
  HostTensor get() const;  // blocks; rethrows the failure
  // Runs `callback` once, on `post`'s thread, when ready.
  void on_ready(std::function<void()> callback, std::function<void(std::function<void()>)> post);

 private:
  void finish(std::exception_ptr error);
  const Shape shape_;  // global
  const DType dtype_;
  const Box region_;
  mutable std::mutex mutex_;
  mutable std::condition_variable ready_;
  HostTensor data_;
  int64_t elements_filled_ = 0;
  bool done_ = false;
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;
};

class CallbackThread;

class TensorFuture {
 public:
  TensorFuture() = default;
  // callbacks: where then() runs what it is given; null: a thread of their own.
  explicit TensorFuture(IntrusivePtr<ReadState> state, std::shared_ptr<CallbackThread> callbacks = nullptr)
      : state_(std::move(state)), callbacks_(std::move(callbacks)) {}
  bool valid() const { return static_cast<bool>(state_); }
  bool is_ready() const { return state().is_ready(); }
  void wait() const { state().wait(); }
  // False when `timeout` passed first.
  template <class Rep, class Period>
  bool wait_for(std::chrono::duration<Rep, Period> timeout) const {
    return state().wait_for(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
  }
  // Blocks. Throws RuntimeFault (operator, device, node, source line) when the value, or anything that it depends on,
  // failed.
  HostTensor get() const { return state().get(); }
  // Runs `callback(value)` on the client's callback thread when the value is there. An exception of the callback, and a
  // failed read, surface at the next read or flush of the program.
  void then(std::function<void(const HostTensor&)> callback) const;

 private:
  ReadState& state() const;  // throws UserError when there is none
  IntrusivePtr<ReadState> state_;
  std::shared_ptr<CallbackThread> callbacks_;
};

}  // namespace dtorch
