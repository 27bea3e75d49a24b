#include "runtime/client/future.h"

#include <utility>

#include "runtime/base/trace_span.h"
#include "runtime/client/callback_thread.h"

namespace dtorch {
namespace {

// Copies the rows of `box` (packed) into `data`, which holds `region`. Both in global coordinates.
void copy_rows(const Box& box, const std::byte* packed, const Box& region, std::byte* data, size_t item_bytes) {
  if (box.empty()) return;
  const int64_t ndim = box.ndim();
  if (ndim == 0) {
    std::memcpy(data, packed, item_bytes);
    return;
  }
  const Shape strides = contiguous_strides(region.size);
  const size_t row_bytes = static_cast<size_t>(box.size[ndim - 1]) * item_bytes;
  const int64_t rows = box.num_elements() / box.size[ndim - 1];
  Shape index(ndim, 0);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t offset = 0;
    for (int64_t dim = 0; dim < ndim; ++dim)
      offset += (box.offset[dim] - region.offset[dim] + index[dim]) * strides[dim];
    std::memcpy(data + static_cast<size_t>(offset) * item_bytes, packed + static_cast<size_t>(row) * row_bytes,
                row_bytes);
    for (int64_t dim = ndim - 2; dim >= 0; --dim) {
      if (++index[dim] < box.size[dim]) break;
      index[dim] = 0;
    }
  }
}

}  // namespace

void ReadState::add_box(const Box& box, const std::byte* packed, size_t num_bytes) {
  bool fits = box.ndim() == region_.ndim() && box.size.ndim() == box.offset.ndim();
  for (int64_t dim = 0; fits && dim < box.ndim(); ++dim) {
    fits = box.size[dim] >= 0 && box.offset[dim] >= region_.offset[dim] &&
           box.offset[dim] - region_.offset[dim] <= region_.size[dim] - box.size[dim];
  }
  const size_t item_bytes = static_cast<size_t>(size_of(dtype_));
  if (!fits || num_bytes != static_cast<size_t>(box.num_elements()) * item_bytes) {
    throw DecodeError("a read of box " + region_.str() + " of " + name_of(dtype_) + " " + shape_.str() + " got box " +
                      box.str() + " in " + std::to_string(num_bytes) + " bytes");
  }
  std::lock_guard lock(mutex_);
  if (done_) return;
  if (!data_.defined()) data_ = HostTensor(region_.size, dtype_);
  copy_rows(box, packed, region_, data_.mutable_bytes(), item_bytes);
  elements_filled_ += box.num_elements();
}

bool ReadState::has_all_data() const {
  std::lock_guard lock(mutex_);
  return elements_filled_ >= region_.num_elements();
}

void ReadState::complete() {
  std::exception_ptr error;
  if (!has_all_data()) {
    error = std::make_exception_ptr(
        InternalError("a read of box " + region_.str() + " was completed without all of its data"));
  }
  finish(std::move(error));
}

void ReadState::fail(std::exception_ptr error) { finish(std::move(error)); }

void ReadState::finish(std::exception_ptr error) {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    if (!error && !data_.defined()) data_ = HostTensor(region_.size, dtype_);
    error_ = std::move(error);
    done_ = true;
    callbacks.swap(callbacks_);
    ready_.notify_all();
  }
  for (std::function<void()>& callback : callbacks) callback();
}

bool ReadState::is_ready() const {
  std::lock_guard lock(mutex_);
  return done_;
}

bool ReadState::wait_for(std::chrono::nanoseconds timeout) const {
  std::unique_lock lock(mutex_);
  return ready_.wait_for(lock, timeout, [&] { return done_; });
}

void ReadState::wait() const {
  std::unique_lock lock(mutex_);
  if (done_) return;
  const TraceSpan span("wait for a read");
  ready_.wait(lock, [&] { return done_; });
}

HostTensor ReadState::get() const {
  wait();
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  return data_;
}

void ReadState::on_ready(std::function<void()> callback, std::function<void(std::function<void()>)> post) {
  {
    std::lock_guard lock(mutex_);
    if (!done_) {
      callbacks_.push_back([callback = std::move(callback), post = std::move(post)] { post(callback); });
      return;
    }
  }
  post(std::move(callback));
}

ReadState& TensorFuture::state() const {
  if (!state_) throw UserError("[TensorFuture] this future belongs to no read");
  return *state_;
}

void TensorFuture::then(std::function<void(const HostTensor&)> callback) const {
  ReadState& read = state();
  std::shared_ptr<CallbackThread> callbacks = callbacks_ ? callbacks_ : std::make_shared<CallbackThread>();
  read.on_ready([state = state_, callback = std::move(callback)] { callback(state->get()); },
                [callbacks](std::function<void()> run) { callbacks->post(std::move(run)); });
}

}  // namespace dtorch
