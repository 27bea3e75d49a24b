#include "runtime/worker/native/native_memory.h"

#include <cstdlib>
#include <deque>
#include <mutex>

namespace dtorch {
namespace {

constexpr size_t kHeaderBytes = 64;
// No process can have more. Asking for it is refused here, since allocators of sanitizers end the process.
constexpr size_t kMaxBlockBytes = size_t{1} << 47;
struct BlockHeader {
  int64_t bytes = 0;
  MemoryCounter* counter = nullptr;
};
static_assert(sizeof(BlockHeader) <= kHeaderBytes);

// Never destroyed: blocks may be freed while the process ends.
struct Counters {
  MemoryCounter process;
  std::mutex mutex;
  std::deque<MemoryCounter> devices;  // under mutex
};
Counters& counters() {
  static auto* instance = new Counters;
  return *instance;
}

thread_local MemoryCounter* thread_counter = nullptr;

BlockHeader* header_of(const void* block) {
  return reinterpret_cast<BlockHeader*>(const_cast<std::byte*>(static_cast<const std::byte*>(block)) - kHeaderBytes);
}

}  // namespace

MemoryCounter* new_memory_counter() {
  std::lock_guard lock(counters().mutex);
  return &counters().devices.emplace_back();
}

void set_memory_counter(MemoryCounter* counter) { thread_counter = counter; }

MemoryCounter& memory_counter() { return thread_counter ? *thread_counter : counters().process; }

void* allocate_counted(size_t bytes) {
  if (bytes > kMaxBlockBytes) return nullptr;
  size_t padded = (bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
  void* memory = std::aligned_alloc(kHeaderBytes, padded + kHeaderBytes);
  if (!memory) return nullptr;
  MemoryCounter& counter = memory_counter();
  new (memory) BlockHeader{static_cast<int64_t>(bytes), &counter};
  counter.add(static_cast<int64_t>(bytes));
  return static_cast<std::byte*>(memory) + kHeaderBytes;
}

void free_counted(void* block) {
  if (!block) return;
  BlockHeader* header = header_of(block);
  header->counter->remove(header->bytes);
  std::free(header);
}

int64_t counted_size(const void* block) { return header_of(block)->bytes; }

void charge_block(void* block, MemoryCounter& counter) {
  BlockHeader* header = header_of(block);
  if (header->counter == &counter) return;
  header->counter->remove(header->bytes);
  counter.add(header->bytes);
  header->counter = &counter;
}

// Summed when asked: one counter for all threads would be the one that all devices fight for.
int64_t native_bytes_in_use() {
  std::lock_guard lock(counters().mutex);
  int64_t total = counters().process.in_use.load(std::memory_order_relaxed);
  for (const MemoryCounter& counter : counters().devices) total += counter.in_use.load(std::memory_order_relaxed);
  return total;
}

}  // namespace dtorch
