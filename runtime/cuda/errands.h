// What the host does when a stream has come somewhere: a thread that sleeps on events, in order, and calls. It is not
// the driver's thread, so that errands may call CUDA. Thread-safe.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/cuda/events.h"

namespace dtorch::cuda {

class Errands {
 public:
  // on_failure: told, before the errand, what an event's work died of. device: of the events.
  Errands(int device, std::function<void(cudaError_t)> on_failure);
  ~Errands();  // after all errands have been called
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  // In the order of these calls, each after its event has passed or failed. A null event: has passed.
  void add(std::shared_ptr<const Event> event, std::function<void()> errand);

 private:
  struct Item {
    std::shared_ptr<const Event> event;
    std::function<void()> errand;
  };
  void loop(int device);

  const std::function<void(cudaError_t)> on_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  // under mutex_
  bool stop_ = false;       // under mutex_
  std::thread thread_;
};

}  // namespace dtorch::cuda
