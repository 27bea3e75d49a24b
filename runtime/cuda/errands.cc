#include "runtime/cuda/errands.h"

namespace dtorch::cuda {

Errands::Errands(int device, std::function<void(cudaError_t)> on_failure)
    : on_failure_(std::move(on_failure)), thread_([this, device] { loop(device); }) {}

Errands::~Errands() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Errands::add(std::shared_ptr<const Event> event, std::function<void()> errand) {
  bool was_empty = false;
  {
    std::lock_guard lock(mutex_);
    was_empty = items_.empty();
    items_.push_back({std::move(event), std::move(errand)});
  }
  if (was_empty) changed_.notify_one();
}

void Errands::loop(int device) {
  // Where that fails, so do the events below.
  const cudaError_t no_device = cudaSetDevice(device);
  if (no_device != cudaSuccess) on_failure_(no_device);
  std::deque<Item> taken;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !items_.empty(); });
      if (items_.empty()) return;
      taken.swap(items_);
    }
    for (Item& item : taken) {
      const cudaError_t code = item.event ? cudaEventSynchronize(item.event->get()) : cudaSuccess;
      if (code != cudaSuccess) on_failure_(code);
      item.errand();
      item = {};
    }
    taken.clear();
  }
}

}  // namespace dtorch::cuda
