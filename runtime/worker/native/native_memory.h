// Who holds how much memory: every storage is charged to a MemoryCounter, that of the thread that made it. Threads of
// devices set theirs; all others charge the process's. Thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "ops/def/native_tensor.h"
#include "runtime/base/error.h"

namespace dtorch {

struct MemoryCounter {
  std::atomic<int64_t> in_use{0};
  std::atomic<int64_t> peak{0};
  void add(int64_t bytes) {
    int64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  void remove(int64_t bytes) { in_use.fetch_sub(bytes, std::memory_order_relaxed); }
};

class OutOfMemory : public RuntimeFault {
 public:
  explicit OutOfMemory(size_t bytes)
      : RuntimeFault("out of memory: " + std::to_string(bytes) + " bytes could not be allocated") {}
  // In the words of whoever noticed it.
  explicit OutOfMemory(const std::string& what) : RuntimeFault("out of memory: " + what) {}
};

// Storages may outlive whoever made a counter, so counters live as long as the process. Never null.
MemoryCounter* new_memory_counter();
// Charges this thread's later storages to `counter`; null: the process's counter.
void set_memory_counter(MemoryCounter* counter);
// The calling thread's.
MemoryCounter& memory_counter();
// Moves the charge of a tensor's storage to `counter` (a result that another thread made for this device). Does nothing
// for storages made elsewhere. The caller's handle must be the storage's only one.
void charge_storage(const NativeTensor& tensor, MemoryCounter& counter);
// Storages made from now on are charged. With LibTorch this puts our allocator before the default one, so that what
// kernels make is charged too. Idempotent; NativeTensor::empty and device threads call it.
void count_allocations();

// The part that both builds share: a block with a hidden header in front. 64-byte aligned. Null when memory is short.
void* allocate_counted(size_t bytes);
void free_counted(void* block);
int64_t counted_size(const void* block);
void charge_block(void* block, MemoryCounter& counter);

}  // namespace dtorch
