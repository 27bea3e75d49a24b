#include "runtime/cuda/events.h"

#include "runtime/cuda/check.h"

namespace dtorch::cuda {

cudaEvent_t EventPool::take() {
  {
    std::lock_guard lock(mutex_);
    if (!waiting_.empty()) {
      const cudaEvent_t event = waiting_.back();
      waiting_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  // Whoever waits for one on the host sleeps meanwhile.
  DTORCH_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
  return event;
}

void EventPool::give_back(cudaEvent_t event) noexcept {
  std::lock_guard lock(mutex_);
  waiting_.push_back(event);
}

Event::Event(EventPool& pool, cudaStream_t stream) : pool_(pool), stream_(stream), event_(pool.take()) {
  const cudaError_t code = cudaEventRecord(event_, stream);
  if (code == cudaSuccess) return;
  pool_.give_back(event_);
  check(code, "cudaEventRecord");
}

}  // namespace dtorch::cuda
