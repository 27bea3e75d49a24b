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

// Small blocks that this thread has freed, for its next ones: an aligned allocation costs more than most small kernels.
// What waits isn't charged to anybody.
class SmallBlocks {
 public:
  // multiples: of kHeaderBytes, without the header. Null when none waits.
  void* take(size_t multiples) {
    if (multiples > kMaxMultiples || first_[multiples] == nullptr) return nullptr;
    Waiting* const taken = first_[multiples];
    first_[multiples] = taken->next;
    room_ += bytes_of(multiples);
    return taken;
  }
  // False: it isn't kept.
  bool keep(void* memory, size_t multiples) {
    if (multiples > kMaxMultiples || (room_ < bytes_of(multiples) && !make_room(multiples))) return false;
    first_[multiples] = new (memory) Waiting{first_[multiples]};
    room_ -= bytes_of(multiples);
    return true;
  }

 private:
  struct Waiting {
    Waiting* next;
  };
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kMaxKeptBytes = 0;  // so that the use of freed memory is seen
#else
  static constexpr size_t kMaxKeptBytes = size_t{1} << 20;
#endif
  static constexpr size_t kMaxMultiples = 64;
  static size_t bytes_of(size_t multiples) { return (multiples + 1) * kHeaderBytes; }
  // False when the thread keeps as much as it may, or ends.
  bool make_room(size_t multiples);

  // (No destructor: every use would ask whether it has been constructed.)
  Waiting* first_[kMaxMultiples + 1] = {};
  size_t room_ = 0;        // bytes
  bool was_made_ = false;  // room, which the thread's end takes back
};
constinit thread_local SmallBlocks small_blocks;

bool SmallBlocks::make_room(size_t multiples) {
  if (was_made_ || kMaxKeptBytes == 0) return false;
  struct AtThreadEnd {
    ~AtThreadEnd() {
      for (size_t of = 0; of <= kMaxMultiples; ++of) {
        while (void* memory = small_blocks.take(of)) std::free(memory);
      }
      small_blocks.room_ = 0;  // what dies later isn't kept
    }
  };
  static thread_local AtThreadEnd at_thread_end;
  static_cast<void>(at_thread_end);
  was_made_ = true;
  room_ = kMaxKeptBytes;
  return bytes_of(multiples) <= room_;
}

size_t multiples_of_header(size_t bytes) { return (bytes + kHeaderBytes - 1) / kHeaderBytes; }

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
  const size_t multiples = multiples_of_header(bytes);
  void* memory = small_blocks.take(multiples);
  if (!memory) memory = std::aligned_alloc(kHeaderBytes, (multiples + 1) * kHeaderBytes);
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
  if (!small_blocks.keep(header, multiples_of_header(static_cast<size_t>(header->bytes)))) std::free(header);
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
