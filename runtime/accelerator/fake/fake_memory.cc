#include "runtime/accelerator/fake/fake_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "runtime/accelerator/fake/fake_graph.h"
#include "runtime/worker/native/native_memory.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch::fake {
namespace {

// Of every floating dtype a NaN; of whole numbers -1, which no index is.
constexpr int kGarbage = 0xFF;

struct Block {
  ~Block() { free_counted(data); }
  Driver* driver = nullptr;
  std::shared_ptr<Driver::Queue> owner;
  void* data = nullptr;  // of allocate_counted
  size_t num_bytes = 0;
  std::vector<std::shared_ptr<Driver::Queue>> users;  // under the mutex of Blocks
};
using BlockPtr = std::shared_ptr<Block>;

// By where their memory begins. Never destroyed: tensors may die while the process ends.
struct Blocks {
  std::mutex mutex;
  std::map<const void*, BlockPtr> by_data;  // under mutex
};
Blocks& blocks() {
  static auto* instance = new Blocks;
  return *instance;
}

NativeTensor all_of(const BlockPtr& block, DType dtype) {
  const Shape elements{static_cast<int64_t>(block->num_bytes) / size_of(dtype)};
  return tensor_over(
      block->data, block->num_bytes, new BlockPtr(block), [](void* holder) { delete static_cast<BlockPtr*>(holder); },
      elements, dtype);
}

void note_use(const Block& block) {
  if (Driver::Capture* capture = capture_of_thread()) capture->memory.insert(block.data);
}

// Of the last handle: the block dies when its streams are through with it.
void release(void* context) {
  BlockPtr block;
  {
    std::lock_guard lock(blocks().mutex);
    const auto found = blocks().by_data.find(context);
    block = std::move(found->second);
    blocks().by_data.erase(found);
  }
  Driver& driver = *block->driver;
  auto users_left = std::make_shared<std::atomic<size_t>>(block->users.size());
  for (const std::shared_ptr<Driver::Queue>& user : block->users) {
    const auto leave = [users_left] { users_left->fetch_sub(1, std::memory_order_acq_rel); };
    if (!driver.push(*user, leave)) leave();
  }
  const auto is_ready = [users_left] { return users_left->load(std::memory_order_acquire) == 0; };
  // Who reads it all the same, by mistake, reads this.
  const auto die = [block] { std::memset(block->data, kGarbage, block->num_bytes); };
  if (driver.push(*block->owner, die, is_ready)) return;
  for (const std::shared_ptr<Driver::Queue>& user : block->users) {
    if (driver.push(*user, die, is_ready)) return;
  }
  die();
}

}  // namespace

NativeTensor allocate(Driver& driver, const std::shared_ptr<Driver::Queue>& owner, const Shape& local_shape,
                      DType dtype, MemoryCounter* memory) {
  auto block = std::make_shared<Block>();
  block->driver = &driver;
  block->owner = owner;
  block->num_bytes = static_cast<size_t>(local_shape.num_elements() * size_of(dtype));
  block->data = allocate_counted(block->num_bytes);
  if (block->data == nullptr) throw OutOfMemory(block->num_bytes);
  if (memory != nullptr) charge_block(block->data, *memory);
  std::memset(block->data, kGarbage, block->num_bytes);
  {
    std::lock_guard lock(blocks().mutex);
    blocks().by_data[block->data] = block;
  }
  return tensor_over(block->data, block->num_bytes, block->data, &release, local_shape, dtype);
}

bool is_of_device(const NativeTensor& value) {
  if (value.num_elements() == 0) return true;
  std::lock_guard lock(blocks().mutex);
  return blocks().by_data.contains(storage_of(value));
}

NativeTensor memory_of(const NativeTensor& value) {
  BlockPtr block;
  {
    std::lock_guard lock(blocks().mutex);
    const auto found = blocks().by_data.find(storage_of(value));
    if (found == blocks().by_data.end()) return value;
    block = found->second;
  }
  if (value.num_elements() == 0) return value;  // where it lies LibTorch doesn't say
  note_use(*block);
  const int64_t offset = (value.data() - static_cast<std::byte*>(block->data)) / size_of(value.dtype());
  return strided_view(all_of(block, value.dtype()), value.local_shape(), value.strides(), offset);
}

NativeTensor memory_at(const std::byte* data, int64_t num_bytes) {
  std::lock_guard lock(blocks().mutex);
  auto found = blocks().by_data.upper_bound(data);
  const BlockPtr block = found == blocks().by_data.begin() ? nullptr : std::prev(found)->second;
  const int64_t offset = block ? data - static_cast<const std::byte*>(block->data) : 0;
  DTORCH_CHECK(block && offset + num_bytes <= static_cast<int64_t>(block->num_bytes),
               std::to_string(num_bytes) + " bytes that aren't a fake device's");
  note_use(*block);
  return all_of(block, kUInt8).narrowed({Shape{offset}, Shape{num_bytes}});
}

void share(const NativeTensor& value, const std::shared_ptr<Driver::Queue>& user) {
  std::lock_guard lock(blocks().mutex);
  const auto found = blocks().by_data.find(storage_of(value));
  if (found == blocks().by_data.end()) return;
  Block& block = *found->second;
  if (block.owner == user || std::ranges::find(block.users, user) != block.users.end()) return;
  block.users.push_back(user);
}

}  // namespace dtorch::fake
