// TensorFuture and ReadState: waiting, callbacks, failures, assembly.
#include "runtime/client/future.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/client/test_operators.h"

namespace dtorch::testing {
namespace {

using namespace std::chrono_literals;

class FutureTest : public ClientTest {
 protected:
  Tensor x_ = make({2, 3}, {.mesh = mesh_, .placements = {Shard(0), Replicate()}});
};

TEST_F(FutureTest, IsReadyWhenTheReadHasBeenAnswered) {
  runtime_->hold();
  TensorFuture future = x_.to_host_async();
  EXPECT_FALSE(future.is_ready());
  EXPECT_FALSE(future.wait_for(1ms));
  runtime_->release();
  future.wait();
  EXPECT_TRUE(future.is_ready());
  EXPECT_TRUE(future.wait_for(0ms));
  EXPECT_EQ(future.get().to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(future.get().shape(), (Shape{2, 3}));
}

TEST_F(FutureTest, RethrowsTheFailureEveryTimeItIsAsked) {
  runtime_->fail_reads(std::make_exception_ptr(RuntimeFault("kernel failed")));
  TensorFuture future = x_.to_host_async();
  EXPECT_THROW(future.get(), RuntimeFault);
  EXPECT_THROW(future.get(), RuntimeFault);
}

TEST_F(FutureTest, RunsCallbacksOnceOnAnotherThreadWhetherRegisteredBeforeOrAfterTheAnswer) {
  runtime_->hold();
  TensorFuture future = x_.to_host_async();
  std::atomic<int> calls{0};
  std::atomic<bool> same_thread{false};
  const auto user = std::this_thread::get_id();
  auto count = [&](const HostTensor& value) {
    calls += static_cast<int>(value.num_elements());
    if (std::this_thread::get_id() == user) same_thread = true;
  };
  future.then(count);
  EXPECT_EQ(calls, 0);
  runtime_->release();
  future.wait();
  future.then(count);
  client_.close();
  EXPECT_EQ(calls, 12);
  EXPECT_FALSE(same_thread);
}

TEST_F(FutureTest, ACallbacksExceptionSurfacesAtTheNextRead) {
  TensorFuture future = x_.to_host_async();
  std::atomic<bool> thrown{false};
  future.then([&](const HostTensor&) {
    thrown = true;
    throw std::runtime_error("callback failed");
  });
  while (!thrown) std::this_thread::yield();
  // The exception is kept a moment after it was thrown.
  bool surfaced = false;
  while (!surfaced) {
    try {
      x_.to_host();
    } catch (const std::runtime_error& e) {
      surfaced = std::string(e.what()) == "callback failed";
    }
  }
  EXPECT_EQ(x_.to_host().num_elements(), 6);
}

TEST_F(FutureTest, AFailedReadWithACallbackSurfacesAtClose) {
  runtime_->fail_reads(std::make_exception_ptr(RuntimeFault("kernel failed")));
  bool called = false;
  x_.to_host_async().then([&](const HostTensor&) { called = true; });
  EXPECT_THROW(client_.close(), RuntimeFault);
  EXPECT_FALSE(called);
}

TEST_F(FutureTest, MayBeWaitedForByAnyThread) {
  runtime_->hold();
  TensorFuture future = x_.to_host_async();
  std::vector<std::thread> threads;
  std::atomic<int> sum{0};
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { sum += future.get().at<int>(1, 2); });
  runtime_->release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 20);
}

TEST(TensorFutureAlone, SaysThatItBelongsToNoRead) { EXPECT_THROW(TensorFuture().get(), UserError); }

TEST(ReadState, AssemblesBoxesOfARegionInAnyOrder) {
  ReadState read({4, 6}, kInt32, {{1, 2}, {2, 3}});
  const int32_t right[] = {1, 2, 4, 5}, left[] = {0, 3};
  read.add_box({{1, 3}, {2, 2}}, reinterpret_cast<const std::byte*>(right), sizeof right);
  EXPECT_FALSE(read.has_all_data());
  read.add_box({{1, 2}, {2, 1}}, reinterpret_cast<const std::byte*>(left), sizeof left);
  EXPECT_TRUE(read.has_all_data());
  read.complete();
  EXPECT_EQ(read.get().to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(ReadState, RefusesBoxesThatDontFit) {
  ReadState read({4, 6}, kInt32, {{1, 2}, {2, 3}});
  const int32_t data[8] = {};
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  EXPECT_THROW(read.add_box({{0, 2}, {2, 1}}, bytes, 8), DecodeError);
  EXPECT_THROW(read.add_box({{1, 4}, {2, 2}}, bytes, 16), DecodeError);
  EXPECT_THROW(read.add_box({{1, 2}, {2, 1}}, bytes, 12), DecodeError);
  EXPECT_THROW(read.add_box({{1}, {2}}, bytes, 8), DecodeError);
  EXPECT_THROW(read.add_box({{1, 2}, {-1, 1}}, bytes, 8), DecodeError);
}

TEST(ReadState, TakesTheFirstOfCompletionAndFailure) {
  ReadState failed({}, kInt32, whole({}));
  failed.fail(std::make_exception_ptr(RuntimeFault("first")));
  failed.fail(std::make_exception_ptr(RuntimeFault("second")));
  failed.complete();
  try {
    failed.get();
    FAIL() << "no failure";
  } catch (const RuntimeFault& e) {
    EXPECT_STREQ(e.what(), "first");
  }
  ReadState empty({0, 3}, kInt32, whole({0, 3}));
  empty.complete();
  EXPECT_EQ(empty.get().shape(), (Shape{0, 3}));
  ReadState incomplete({2}, kInt32, whole({2}));
  incomplete.complete();
  EXPECT_THROW(incomplete.get(), InternalError);
}

}  // namespace
}  // namespace dtorch::testing
