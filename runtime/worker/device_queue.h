// DeviceQueue: the streams of one device that runs behind the host (runtime/accelerator/accelerator.h), and the ways of
// values between them and the host. On the CPU there is none: kernels are calls. docs/gpu.md.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/accelerator/accelerator.h"
#include "runtime/worker/native/native_memory.h"

namespace dtorch {

class DeviceQueue {
 public:
  // On the accelerator that stands for slot `slot`. memory: of the device; outlives what it is charged for.
  DeviceQueue(std::shared_ptr<AcceleratorLibrary> library, size_t slot, size_t num_streams, MemoryCounter* memory);
  // Waits for what is enqueued.
  ~DeviceQueue();
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  Accelerator& accelerator() { return accelerator_; }
  MemoryCounter* memory() { return memory_; }
  // By the thread that runs the compute stream.
  DeviceStream& compute(size_t stream) { return *compute_[stream]; }
  size_t num_streams() const { return compute_.size(); }
  // Blocks until all streams have run what they have.
  void synchronize();

  // Values on streams of their own, so that computing goes on. By any thread, as what follows.
  // Calls done(value on the host) when `value`, which is made on `maker`, is there.
  void to_host(DeviceStream& maker, const NativeTensor& value, std::function<void(NativeTensor)> done);
  // Makes `user` wait for the copy of a value of the host; the result is charged to the device.
  NativeTensor from_host(const NativeTensor& value, DeviceStream& user);
  // The same for all compute streams.
  NativeTensor from_host(const NativeTensor& value);
  // Calls work(stream) with the communication stream; one thread at a time.
  template <class Work>
  auto communicate(Work work) {
    std::lock_guard lock(mutex_);
    return work(*communication_);
  }
  // Told of what fails on any of the streams.
  void set_failure_handler(const DeviceStream::FailureHandler& handler);
  // Of streams that several threads give work to.
  void mark(const StreamMark& mark);

 private:
  const std::shared_ptr<AcceleratorLibrary> library_;
  Accelerator& accelerator_;
  MemoryCounter* const memory_;
  std::vector<std::unique_ptr<DeviceStream>> compute_;
  std::mutex mutex_;
  std::unique_ptr<DeviceStream> communication_, to_host_, from_host_;  // under mutex_
};

}  // namespace dtorch
