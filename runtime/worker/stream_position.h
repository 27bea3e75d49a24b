// What a device is doing, for whoever asks: its stream writes, any thread reads. A reader may see the place of one
// moment and the piece of another; only what stands still is exact, and that is what one asks about.
#pragma once
#include <atomic>

#include "runtime/graph/inspection.h"

namespace dtorch {

class StreamPosition {
 public:
  // By the stream. One store each.
  void begin(Sequence sequence) { sequence_.store(sequence, std::memory_order_relaxed); }
  void at(uint32_t op_index) { op_index_.store(op_index, std::memory_order_relaxed); }
  void idle() { sequence_.store(kNothing, std::memory_order_relaxed); }
  void wait_for(const Place& transfer) {
    awaited_op_.store(transfer.op_index, std::memory_order_relaxed);
    awaited_.store(transfer.sequence, std::memory_order_relaxed);
  }
  void go_on() { awaited_.store(kNothing, std::memory_order_relaxed); }

  // Any thread.
  DeviceStatus status(int64_t device) const {
    DeviceStatus status{.device = device};
    const Sequence sequence = sequence_.load(std::memory_order_relaxed);
    if (sequence == kNothing) return status;
    status.activity = Activity::kRuns;
    status.at = {sequence, op_index_.load(std::memory_order_relaxed)};
    const Sequence awaited = awaited_.load(std::memory_order_relaxed);
    if (awaited == kNothing) return status;
    status.activity = Activity::kWaits;
    status.waits_for = {awaited, awaited_op_.load(std::memory_order_relaxed)};
    return status;
  }

 private:
  static constexpr Sequence kNothing = ~Sequence{0};
  std::atomic<Sequence> sequence_{kNothing}, awaited_{kNothing};
  std::atomic<uint32_t> op_index_{0}, awaited_op_{0};
};

}  // namespace dtorch
