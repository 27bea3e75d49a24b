// Streams of a GPU: order, memory, copies, folds, errands.
#include <atomic>
#include <cstring>
#include <future>

#include "runtime/comm/transfer.h"
#include "runtime/worker/native/native_memory.h"
#include "tests/cuda/gpu.h"
#include "tests/kernel_source/calls.h"

namespace dtorch::test {
namespace {

using Bytes = std::vector<std::byte>;
using CudaStreamTest = GpuTest;

TEST_F(CudaStreamTest, TellsWhatTheGpuIs) {
  for (int32_t i = 0; i < library().num_accelerators(); ++i) {
    const AcceleratorInfo& info = gpu(i).info();
    EXPECT_EQ(info.index, i);
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.memory_bytes, int64_t{1} << 30);
    EXPECT_EQ(info.links.size(), static_cast<size_t>(library().num_accelerators() - 1));
  }
}

TEST_F(CudaStreamTest, ValuesSurviveTheWayToTheGpuAndBack) {
  const auto stream = gpu().new_stream(StreamKind::kCompute);
  for (DType dtype : {kBool, kInt64, kFloat16, kFloat32}) {
    const Bytes bytes = values_of(dtype, 1000, 3);
    EXPECT_EQ(to_host(*stream, to_gpu(*stream, bytes, {1000}, dtype)), bytes);
  }
}

TEST_F(CudaStreamTest, AnEventOrdersTwoStreams) {
  const auto one = gpu().new_stream(StreamKind::kCompute), other = gpu().new_stream(StreamKind::kCopy);
  const Bytes bytes = values_of(kFloat32, 1 << 22, 4);
  for (int round = 0; round < 20; ++round) {
    NativeTensor host = gpu().allocate_host({1 << 22}, kFloat32), value = one->allocate({1 << 22}, kFloat32, nullptr);
    std::memcpy(host.data(), bytes.data(), bytes.size());
    one->set_zero(value);
    one->copy(host, value);
    other->wait(one->record());
    other->share(value);
    EXPECT_EQ(to_host(*other, value), bytes);
  }
}

TEST_F(CudaStreamTest, ErrandsRunInOrderAfterTheWork) {
  std::vector<int> seen;
  {
    const auto stream = gpu().new_stream(StreamKind::kCompute);
    const DeviceEventPtr event = stream->record();
    for (int i = 0; i < 100; ++i) {
      stream->call_on_host([&seen, &event, i] {
        EXPECT_TRUE(event->has_passed());
        seen.push_back(i);
      });
    }
  }  // all have run when the stream is gone
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST_F(CudaStreamTest, ChargesMemoryAndGivesItBack) {
  MemoryCounter& counter = *new_memory_counter();
  const auto stream = gpu().new_stream(StreamKind::kCompute);
  {
    const NativeTensor value = stream->allocate({1 << 20}, kFloat32, &counter);
    EXPECT_EQ(counter.in_use, 4 << 20);
    EXPECT_GE(gpu().memory().allocated_bytes, 4 << 20);
    stream->share(value);
  }
  EXPECT_EQ(counter.in_use, 0);
  const AcceleratorMemory memory = gpu().memory();
  EXPECT_GE(memory.reserved_bytes, memory.allocated_bytes);
  EXPECT_GT(memory.total_bytes, memory.free_bytes);
}

TEST_F(CudaStreamTest, MemoryThatIsShortIsAnErrorAtTheCall) {
  const auto stream = gpu().new_stream(StreamKind::kCompute);
  EXPECT_THROW(stream->allocate({int64_t{1} << 44}, kFloat32, nullptr), OutOfMemory);
  EXPECT_EQ(to_host(*stream, to_gpu(*stream, Bytes(4), {1}, kFloat32)), Bytes(4));  // and the stream goes on
}

TEST_F(CudaStreamTest, CopiesOfAnyStrides) {
  const auto stream = gpu().new_stream(StreamKind::kCompute);
  const Bytes bytes = values_of(kFloat32, 30, 5);
  const NativeTensor value = to_gpu(*stream, bytes, {5, 6}, kFloat32);
  const Box columns{{0, 2}, {5, 3}};
  const NativeTensor part = stream->allocate({5, 3}, kFloat32, nullptr);
  stream->copy(value.narrowed(columns), part);
  NativeTensor expected = NativeTensor::empty({5, 3}, kFloat32), whole_value = NativeTensor::empty({5, 6}, kFloat32);
  std::memcpy(whole_value.data(), bytes.data(), bytes.size());
  copy_box(whole_value, columns, expected, whole({5, 3}));
  EXPECT_EQ(to_host(*stream, part), Bytes(expected.data(), expected.data() + expected.num_bytes()));
}

TEST_F(CudaStreamTest, FoldsAreTheCpusBits) {
  const auto stream = gpu().new_stream(StreamKind::kCommunication);
  for (DType dtype : {kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (ReduceOp reduce : {kSum, kAvg, kMax, kMin}) {
      constexpr int64_t kCount = 1000;
      std::vector<Bytes> parts;
      std::vector<const std::byte*> pointers;
      std::vector<NativeTensor> values;
      for (uint32_t p = 0; p < 5; ++p) parts.push_back(values_of(dtype, kCount, p));
      for (const Bytes& part : parts) {
        pointers.push_back(part.data());
        values.push_back(to_gpu(*stream, part, {kCount}, dtype));
      }
      Bytes expected(parts[0].size());
      const int64_t divisor = reduce == kAvg ? 5 : 1;
      fold_parts(pointers, kCount, dtype, reduce, divisor, expected.data());
      stream->fold(values, reduce, divisor, values[0]);
      EXPECT_EQ(to_host(*stream, values[0]), expected) << name_of(dtype) << " " << name_of(reduce);
    }
  }
}

TEST_F(CudaStreamTest, CopiesBetweenGpus) {
  if (library().num_accelerators() < 2) GTEST_SKIP() << "one GPU is visible";
  const auto from = gpu(0).new_stream(StreamKind::kCompute), to = gpu(1).new_stream(StreamKind::kCompute);
  const Bytes bytes = values_of(kFloat32, 1 << 20, 6);
  const NativeTensor value = to_gpu(*from, bytes, {1 << 20}, kFloat32);
  const NativeTensor copied = to->allocate({1 << 20}, kFloat32, nullptr);
  to->wait(from->record());
  to->copy(value, copied);
  EXPECT_EQ(to_host(*to, copied), bytes);
}

TEST_F(CudaStreamTest, KnowsWhereItIs) {
  const auto stream = gpu().new_stream(StreamKind::kCompute);
  stream->mark({77, 5});
  stream->synchronize();
  EXPECT_EQ(stream->marked().sequence, 77u);
}

TEST_F(CudaStreamTest, ACommunicatorOfOneRankMovesData) {
  CommunicatorFactory* const nccl = library().communicators();
  if (nccl == nullptr) GTEST_SKIP() << "NCCL can't be loaded";
  const auto stream = gpu().new_stream(StreamKind::kCommunication);
  const auto alone = nccl->join(nccl->new_id(), 0, 1, gpu(), {.deadline_s = 60, .is_over = {}});
  const Bytes bytes = values_of(kFloat32, 1000, 7);
  const NativeTensor value = to_gpu(*stream, bytes, {1000}, kFloat32),
                     result = stream->allocate({1000}, kFloat32, nullptr);
  alone->all_reduce(*stream, value.data(), result.data(), 1000, kFloat32, kSum);
  EXPECT_EQ(to_host(*stream, result), bytes);
  EXPECT_EQ(alone->failure(), std::nullopt);
  alone->cancel();
  EXPECT_THROW(alone->all_reduce(*stream, value.data(), result.data(), 1000, kFloat32, kSum), RuntimeFault);
}

TEST_F(CudaStreamTest, CollectivesOfAllGpusAddUp) {
  CommunicatorFactory* const nccl = library().communicators();
  const int32_t ranks = library().num_accelerators();
  if (nccl == nullptr || ranks < 2) GTEST_SKIP() << (nccl == nullptr ? "NCCL can't be loaded" : "one GPU is visible");
  const CommunicatorFactory::Id id = nccl->new_id();
  std::vector<std::future<float>> sums;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    sums.push_back(std::async(std::launch::async, [&, rank] {
      const auto thread = gpu(rank).enter_thread(1);
      const auto stream = gpu(rank).new_stream(StreamKind::kCommunication);
      const auto all = nccl->join(id, rank, ranks, gpu(rank), {.deadline_s = 60, .is_over = {}});
      const float own = static_cast<float>(rank + 1);
      Bytes bytes(sizeof own);
      std::memcpy(bytes.data(), &own, sizeof own);
      const NativeTensor value = to_gpu(*stream, bytes, {1}, kFloat32);
      all->all_reduce(*stream, value.data(), value.data(), 1, kFloat32, kSum);
      float sum = 0;
      std::memcpy(&sum, to_host(*stream, value).data(), sizeof sum);
      return sum;
    }));
  }
  for (auto& sum : sums) EXPECT_EQ(sum.get(), static_cast<float>(ranks * (ranks + 1) / 2));
}

}  // namespace
}  // namespace dtorch::test
