// The fake device's streams: what order, events and handles promise, and what shows when one of them is missing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <future>

#include "runtime/accelerator/fake/fake_faults.h"
#include "runtime/accelerator/fake/fake_library.h"
#include "runtime/worker/native/native_memory.h"
#include "tests/accelerator/setup.h"

namespace dtorch::fake {
namespace {

constexpr int kTries = 100;

class FakeStream : public ::testing::Test {
 protected:
  void SetUp() override { library_ = make_library(setup_for_tests()); }
  void TearDown() override { plant({}); }
  Accelerator& accelerator(int32_t index = 0) { return library_->accelerator(index); }
  NativeTensor host(float value) {
    NativeTensor tensor = accelerator().allocate_host({4}, kFloat32);
    for (int i = 0; i < 4; ++i) reinterpret_cast<float*>(tensor.data())[i] = value;
    return tensor;
  }
  static float first(const NativeTensor& tensor) {
    float value = 0;
    std::memcpy(&value, tensor.data(), sizeof value);
    return value;
  }
  // A value that one stream makes and another one takes; what the other one sees.
  float hand_over(bool with_event) {
    auto maker = accelerator().new_stream(StreamKind::kCompute);
    auto taker = accelerator(1).new_stream(StreamKind::kCommunication);
    const NativeTensor source = host(1), value = maker->allocate({4}, kFloat32, nullptr), seen = host(0);
    maker->copy(source, value);
    if (with_event) taker->wait(maker->record());
    taker->copy(value, seen);
    taker->synchronize();
    maker->synchronize();
    return first(seen);
  }
  // A value whose last handle goes while another stream reads it; what that one sees.
  float drop_while_read(bool keeps) {
    auto maker = accelerator().new_stream(StreamKind::kCompute);
    auto reader = accelerator().new_stream(StreamKind::kCopy);
    NativeTensor value = maker->allocate({4}, kFloat32, nullptr);
    const NativeTensor seen = host(0);
    maker->copy(host(1), value);
    reader->wait(maker->record());
    reader->copy(value, seen);
    if (keeps) reader->keep({value});
    value.reset();
    reader->synchronize();
    maker->synchronize();
    return first(seen);
  }

  std::shared_ptr<AcceleratorLibrary> library_;
};

TEST_F(FakeStream, RunsItsWorkInOrder) {
  auto stream = accelerator().new_stream(StreamKind::kCompute);
  const NativeTensor seen = host(0);
  for (int i = 1; i <= kTries; ++i) {
    NativeTensor value = stream->allocate({4}, kFloat32, nullptr);
    stream->copy(host(static_cast<float>(i)), value);
    stream->copy(value, seen);
  }
  stream->synchronize();
  EXPECT_EQ(first(seen), kTries);
}

TEST_F(FakeStream, AnEventOrdersTwoStreams) {
  for (int i = 0; i < kTries; ++i) ASSERT_EQ(hand_over(true), 1);
}

TEST_F(FakeStream, WithoutAnEventSomebodySeesWhatIsNoNumber) {
  int wrong = 0;
  for (int i = 0; i < kTries; ++i) wrong += std::isnan(hand_over(false)) ? 1 : 0;
  EXPECT_GT(wrong, 0);
}

TEST_F(FakeStream, AValueThatIsKeptOutlivesItsHandles) {
  for (int i = 0; i < kTries; ++i) ASSERT_EQ(drop_while_read(true), 1);
}

TEST_F(FakeStream, MemoryThatDiedIsOverwrittenInTheOrderOfItsStream) {
  int wrong = 0;
  for (int i = 0; i < kTries; ++i) wrong += std::isnan(drop_while_read(false)) ? 1 : 0;
  EXPECT_GT(wrong, 0);
}

TEST_F(FakeStream, AValueThatIsSharedDiesAfterBothStreams) {
  for (int i = 0; i < kTries; ++i) {
    auto maker = accelerator().new_stream(StreamKind::kCompute);
    auto reader = accelerator().new_stream(StreamKind::kCompute);
    NativeTensor value = maker->allocate({4}, kFloat32, nullptr);
    const NativeTensor seen = host(0);
    maker->copy(host(1), value);
    reader->wait(maker->record());
    reader->share(value);
    reader->copy(value, seen);
    value.reset();
    reader->synchronize();
    ASSERT_EQ(first(seen), 1);
  }
}

TEST_F(FakeStream, MemoryIsChargedUntilItHasDied) {
  MemoryCounter* const counter = new_memory_counter();
  auto stream = accelerator().new_stream(StreamKind::kCompute);
  NativeTensor value = stream->allocate({4}, kFloat32, counter);
  EXPECT_EQ(counter->in_use.load(), 16);
  value.reset();
  stream->synchronize();
  EXPECT_EQ(counter->in_use.load(), 0);
  EXPECT_EQ(counter->peak.load(), 16);
}

TEST_F(FakeStream, FoldsPartsInOrder) {
  auto stream = accelerator().new_stream(StreamKind::kCommunication);
  NativeTensor parts[] = {stream->allocate({4}, kFloat32, nullptr), stream->allocate({4}, kFloat32, nullptr)};
  const NativeTensor seen = host(0);
  stream->copy(host(3), parts[0]);
  stream->copy(host(5), parts[1]);
  stream->fold(parts, ReduceOp::kSum, 2, parts[0]);
  stream->copy(parts[0], seen);
  stream->synchronize();
  EXPECT_EQ(first(seen), 4);
}

TEST_F(FakeStream, TellsAFailureWithItsOperatorBeforeTheErrandBehindIt) {
  auto stream = accelerator().new_stream(StreamKind::kCompute);
  std::vector<std::string> told;
  std::mutex mutex;
  const auto tell = [&](const std::string& what) {
    std::lock_guard lock(mutex);
    told.push_back(what);
  };
  stream->set_failure_handler([&](const StreamMark& mark, const std::string& what) {
    tell(std::to_string(mark.sequence) + "/" + std::to_string(mark.op_index) + " " + what);
  });
  stream->mark({7, 3});
  stream->copy(host(1), accelerator().allocate_host({3}, kFloat32));  // four elements onto three
  stream->mark({7, 4});
  stream->call_on_host([&] { tell("errand"); });
  stream->synchronize();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(told[0].starts_with("7/3 ")) << told[0];
  EXPECT_EQ(told[1], "errand");
  EXPECT_EQ(stream->marked(), (StreamMark{7, 4}));
}

TEST_F(FakeStream, AMissingWaitCanBePlanted) {
  Faults unordered;
  unordered.missing_wait = std::pair(StreamKind::kCommunication, StreamKind::kCompute);
  plant(unordered);
  int wrong = 0;
  for (int i = 0; i < kTries; ++i) wrong += hand_over(true) == 1 ? 0 : 1;
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace dtorch::fake
