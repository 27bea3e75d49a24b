#include "runtime/worker/device_queue.h"

#include "runtime/base/error.h"

namespace dtorch {

DeviceQueue::DeviceQueue(std::shared_ptr<AcceleratorLibrary> library, size_t slot, size_t num_streams,
                         MemoryCounter* memory)
    : library_(std::move(library)),
      accelerator_(library_->accelerator(static_cast<int32_t>(slot) % library_->num_accelerators())),
      memory_(memory),
      communication_(accelerator_.new_stream(StreamKind::kCommunication)),
      to_host_(accelerator_.new_stream(StreamKind::kCopy)),
      from_host_(accelerator_.new_stream(StreamKind::kCopy)) {
  for (size_t i = 0; i < num_streams; ++i) compute_.push_back(accelerator_.new_stream(StreamKind::kCompute));
}

DeviceQueue::~DeviceQueue() = default;

void DeviceQueue::synchronize() {
  for (const std::unique_ptr<DeviceStream>& stream : compute_) stream->synchronize();
  std::lock_guard lock(mutex_);
  communication_->synchronize();
  to_host_->synchronize();
  from_host_->synchronize();
}

void DeviceQueue::to_host(DeviceStream& maker, const NativeTensor& value, std::function<void(NativeTensor)> done) {
  NativeTensor host = accelerator_.allocate_host(value.local_shape(), value.dtype());
  DeviceEventPtr made = maker.record();
  std::lock_guard lock(mutex_);
  to_host_->wait(made);
  to_host_->copy(value, host);
  to_host_->keep({value});
  to_host_->call_on_host([host = std::move(host), done = std::move(done)]() mutable { done(std::move(host)); });
}

NativeTensor DeviceQueue::from_host(const NativeTensor& value, DeviceStream& user) {
  NativeTensor pinned = accelerator_.allocate_host(value.local_shape(), value.dtype());
  const Box all = whole(value.local_shape());
  copy_box(value, all, pinned, all);
  DeviceEventPtr there;
  NativeTensor result;
  {
    std::lock_guard lock(mutex_);
    result = from_host_->allocate(value.local_shape(), value.dtype(), memory_);
    from_host_->copy(pinned, result);
    there = from_host_->record();
  }
  user.wait(there);
  user.share(result);
  return result;
}

NativeTensor DeviceQueue::from_host(const NativeTensor& value) {
  NativeTensor result = from_host(value, *compute_[0]);
  const DeviceEventPtr there = compute_[0]->record();
  for (size_t i = 1; i < compute_.size(); ++i) {
    compute_[i]->wait(there);
    compute_[i]->share(result);
  }
  return result;
}

void DeviceQueue::set_failure_handler(const DeviceStream::FailureHandler& handler) {
  for (const std::unique_ptr<DeviceStream>& stream : compute_) stream->set_failure_handler(handler);
  std::lock_guard lock(mutex_);
  communication_->set_failure_handler(handler);
  to_host_->set_failure_handler(handler);
  from_host_->set_failure_handler(handler);
}

void DeviceQueue::mark(const StreamMark& mark) {
  std::lock_guard lock(mutex_);
  to_host_->mark(mark);
  from_host_->mark(mark);
}

}  // namespace dtorch
