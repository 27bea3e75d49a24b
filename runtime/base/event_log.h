// EventLog: what one thread notes for a timeline, in order, up to a limit; what comes after it is only counted. Blocks
// are made as they fill, so that a short run costs little. One thread writes, any thread may read what is there.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace dtorch {

template <class T>
class EventLog {
 public:
  static constexpr size_t kBlockEvents = 4096;
  static constexpr size_t kMaxBlocks = 32;
  static constexpr size_t kMaxEvents = kBlockEvents * kMaxBlocks;

  // The writing thread.
  void add(const T& event) {
    const size_t at = size_.load(std::memory_order_relaxed);
    if (at == kMaxEvents) {
      dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      return;
    }
    std::unique_ptr<T[]>& block = blocks_[at / kBlockEvents];
    if (!block) block = std::make_unique_for_overwrite<T[]>(kBlockEvents);
    block[at % kBlockEvents] = event;
    size_.store(at + 1, std::memory_order_release);
  }

  size_t size() const { return size_.load(std::memory_order_acquire); }
  const T& operator[](size_t i) const { return blocks_[i / kBlockEvents][i % kBlockEvents]; }  // i < a size() seen
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::array<std::unique_ptr<T[]>, kMaxBlocks> blocks_;
  std::atomic<size_t> size_{0};
  std::atomic<int64_t> dropped_{0};
};

// The clock of all timelines, in nanoseconds; the same for all processes of a machine.
inline int64_t trace_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace dtorch
