// NativeTensor and its memory accounting, in both builds; how a read is cut into messages.
#include "ops/def/native_tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "runtime/worker/native/native_memory.h"
#include "runtime/worker/native/native_metadata.h"
#include "runtime/worker/read_sender.h"
#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

template <class T>
NativeTensor iota(const Shape& shape) {
  NativeTensor tensor = NativeTensor::empty(shape, dtype_of<T>());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) reinterpret_cast<T*>(tensor.data())[i] = static_cast<T>(i);
  return tensor;
}
template <class T>
std::vector<T> packed(const NativeTensor& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.num_elements()));
  pack_box(tensor, whole(tensor.local_shape()), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

TEST(NativeTensor, AViewSharesStorageAndKnowsItsStrides) {
  NativeTensor x = iota<int32_t>({3, 4});
  EXPECT_TRUE(x.is_sole_owner());
  NativeTensor view = x.narrowed({{1, 1}, {2, 2}});
  EXPECT_FALSE(x.is_sole_owner());
  EXPECT_FALSE(view.is_sole_owner());
  EXPECT_FALSE(view.is_contiguous());
  EXPECT_EQ(view.strides(), (Shape{4, 1}));
  EXPECT_EQ(packed<int32_t>(view), (std::vector<int32_t>{5, 6, 9, 10}));
  EXPECT_EQ(packed<int32_t>(view.contiguous()), (std::vector<int32_t>{5, 6, 9, 10}));
  x.reset();
  EXPECT_TRUE(view.is_sole_owner());
  EXPECT_EQ(view.storage_bytes(), 48);
  EXPECT_THROW(view.narrowed({{0, 1}, {2, 2}}), InternalError);
}

TEST(NativeTensor, IsReusableWhereItLiesAsANewOneWould) {
  NativeTensor x = iota<int32_t>({4, 3});
  EXPECT_TRUE(x.is_reusable());
  NativeTensor second_row = x.narrowed({{1, 0}, {1, 3}}), first_row = x.narrowed({{0, 0}, {1, 3}});
  NativeTensor column = x.narrowed({{0, 0}, {4, 1}}), transposed = strided_view(x, {3, 4}, {1, 3}, 0);
  EXPECT_FALSE(x.is_reusable());
  x.reset();
  const auto alone = [&](NativeTensor& tensor) {
    NativeTensor kept = std::move(tensor);
    for (NativeTensor* other : {&second_row, &first_row, &column, &transposed}) {
      if (other != &tensor && *other) other->reset();
    }
    const bool reusable = kept.is_reusable();
    EXPECT_TRUE(kept.is_sole_owner());
    // For the next one: a whole tensor again, and its views.
    x = iota<int32_t>({4, 3});
    second_row = x.narrowed({{1, 0}, {1, 3}}), first_row = x.narrowed({{0, 0}, {1, 3}});
    column = x.narrowed({{0, 0}, {4, 1}}), transposed = strided_view(x, {3, 4}, {1, 3}, 0);
    x.reset();
    return reusable;
  };
  EXPECT_FALSE(alone(second_row)) << "begins inside its storage";
  EXPECT_TRUE(alone(first_row));
  EXPECT_TRUE(alone(transposed)) << "results of elementwise operators lie like their operands";
  EXPECT_TRUE(alone(column)) << "not contiguous";
  NativeTensor odd = strided_view(iota<int32_t>({1, 3}), {1, 3}, {7, 1}, 0);
  EXPECT_TRUE(odd.is_contiguous());
  EXPECT_FALSE(odd.is_reusable()) << "a new tensor has strides 3, 1";
}

TEST(NativeTensor, CopiesBoxesOfEverySizeOfElement) {
  auto check = []<class T>() {
    NativeTensor from = iota<T>({4, 5}), to = NativeTensor::empty({3, 3}, dtype_of<T>());
    std::memset(to.data(), 0, static_cast<size_t>(to.num_bytes()));
    copy_box(from, {{1, 2}, {2, 3}}, to, {{1, 0}, {2, 3}});
    EXPECT_EQ(packed<T>(to), (std::vector<T>{0, 0, 0, 7, 8, 9, 12, 13, 14}));
    // Strided on both sides, the inner dim too.
    copy_box(from.narrowed({{0, 1}, {3, 1}}), whole({3, 1}), to, {{0, 2}, {3, 1}});
    EXPECT_EQ(packed<T>(to), (std::vector<T>{0, 0, 1, 7, 8, 6, 12, 13, 11}));
  };
  check.operator()<uint8_t>();
  check.operator()<int16_t>();
  check.operator()<float>();
  check.operator()<double>();
}

TEST(NativeTensor, PacksAndUnpacksScalarsAndEmptyBoxes) {
  NativeTensor scalar = iota<int64_t>({});
  int64_t value = 42;
  unpack_box(reinterpret_cast<const std::byte*>(&value), scalar, whole({}));
  EXPECT_EQ(packed<int64_t>(scalar), std::vector<int64_t>{42});
  NativeTensor empty = NativeTensor::empty({0, 3}, kFloat32);
  EXPECT_EQ(empty.num_bytes(), 0);
  EXPECT_TRUE(packed<float>(empty).empty());
  EXPECT_TRUE(empty.is_contiguous());
  EXPECT_EQ(empty.narrowed({{0, 1}, {0, 2}}).local_shape(), (Shape{0, 2}));
}

TEST(NativeTensor, MetadataIsComparedByShapeAndType) {
  NativeTensor x = iota<float>({2, 3});
  EXPECT_TRUE(has_metadata(x, {2, 3}, kFloat32));
  EXPECT_FALSE(has_metadata(x, {3, 2}, kFloat32));
  EXPECT_FALSE(has_metadata(x, {2, 3}, kFloat64));
  EXPECT_FALSE(has_metadata(NativeTensor(), {}, kFloat32));
  EXPECT_EQ(x.str(), "float32 [2, 3]");
}

TEST(NativeMemory, IsChargedToTheThreadsCounterUntilItIsFreed) {
  MemoryCounter* mine = new_memory_counter();
  MemoryCounter* other = new_memory_counter();
  int64_t before = native_bytes_in_use();
  set_memory_counter(mine);
  NativeTensor a = NativeTensor::empty({100}, kFloat64);
  {
    NativeTensor b = NativeTensor::empty({50}, kFloat32);
    EXPECT_EQ(mine->in_use, 1000);
  }
  set_memory_counter(nullptr);
  EXPECT_EQ(mine->in_use, 800);
  EXPECT_EQ(mine->peak, 1000);
  EXPECT_EQ(native_bytes_in_use() - before, 800);
  charge_storage(a, *other);
  EXPECT_EQ(mine->in_use, 0);
  EXPECT_EQ(other->in_use, 800);
  a.reset();
  EXPECT_EQ(other->in_use, 0);
  EXPECT_EQ(native_bytes_in_use(), before);
}

TEST(NativeMemory, ASmallBlockThatWasFreedIsTheThreadsNextOfItsSize) {
  const int64_t before = native_bytes_in_use();
  void* const first = allocate_counted(100);
  std::memset(first, 1, 100);
  free_counted(first);
  EXPECT_EQ(native_bytes_in_use(), before);
  void* const larger = allocate_counted(300);
  void* const again = allocate_counted(120);  // as many cache lines as the first
  EXPECT_NE(larger, first);
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(again, first);
#endif
  EXPECT_EQ(counted_size(again), 120);
  EXPECT_EQ(native_bytes_in_use(), before + 420);
  std::thread([&] { free_counted(again); }).join();  // that thread's end gives it back
  EXPECT_EQ(native_bytes_in_use(), before + 300);
  free_counted(larger);
  // More than a thread keeps.
  std::vector<void*> many;
  for (int i = 0; i < 1000; ++i) many.push_back(allocate_counted(4096));
  for (void* block : many) free_counted(block);
  EXPECT_EQ(native_bytes_in_use(), before);
}

TEST(NativeMemory, AnAllocationThatCanNotBeServedIsAnError) {
  EXPECT_THROW(NativeTensor::empty({int64_t{1} << 59}, kFloat64), RuntimeFault);
}

TEST(ReadSender, CutsALargePartAlongItsOutermostDims) {
  InProcessFabric fabric(1);
  CommThread comm(fabric.make_transport(0), {}, [](std::exception_ptr) {});
  NodeContext node(0, fabric.control(0), comm);
  NativeTensor part = iota<int64_t>({3, 4});
  const Box box{{2, 5}, {3, 4}};
  auto boxes_for = [&](int64_t max_bytes) {
    send_part(node, 1, part, box, max_bytes);
    std::vector<Box> boxes;
    int64_t next = 0;
    while (std::optional<Envelope> envelope = fabric.control(kController).inbox().try_pop()) {
      ReadData data = decode_read_data(envelope->message);
      boxes.push_back(data.box);
      const auto* values = reinterpret_cast<const int64_t*>(envelope->message.payload->data());
      EXPECT_LE(data.box.num_elements() * 8, max_bytes);
      for (int64_t i = 0; i < data.box.num_elements(); ++i) EXPECT_EQ(values[i], next++);
    }
    EXPECT_EQ(next, 12);
    return boxes;
  };
  EXPECT_EQ(boxes_for(96), std::vector<Box>{box});
  EXPECT_EQ(boxes_for(64), (std::vector<Box>{{{2, 5}, {2, 4}}, {{4, 5}, {1, 4}}}));
  EXPECT_EQ(boxes_for(24).size(), 6u);  // rows of 4 in 3 + 1
}

}  // namespace
}  // namespace dtorch::testing_worker
