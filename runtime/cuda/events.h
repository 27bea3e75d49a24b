// CUDA events as DeviceEvents, kept for reuse. Thread-safe.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <vector>

#include "runtime/accelerator/accelerator.h"

namespace dtorch::cuda {

// Events of one GPU that nobody uses. Lives as long as the process.
class EventPool {
 public:
  explicit EventPool(int device) : device_(device) {}
  int device() const { return device_; }
  cudaEvent_t take();
  void give_back(cudaEvent_t event) noexcept;

 private:
  const int device_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> waiting_;  // under mutex_
};

class Event final : public DeviceEvent {
 public:
  // Records it. `stream`: of the pool's GPU.
  Event(EventPool& pool, cudaStream_t stream);
  ~Event() override { pool_.give_back(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  bool has_passed() const override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  cudaEvent_t get() const { return event_; }
  cudaStream_t stream() const { return stream_; }

 private:
  EventPool& pool_;
  const cudaStream_t stream_;
  const cudaEvent_t event_;
};

}  // namespace dtorch::cuda
