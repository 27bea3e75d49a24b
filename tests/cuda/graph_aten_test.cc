// Graphs of a GPU's stream: what was captured runs again, temporaries of LibTorch's kernels included, and what can't be
// captured is refused.
#include <cstring>
#include <functional>

#include "tests/cuda/gpu.h"
#include "tests/kernel_source/calls.h"

namespace dtorch::test {
namespace {

using Bytes = std::vector<std::byte>;

class CudaGraphTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) stream_ = gpu().new_stream(StreamKind::kCompute);
  }
  NativeTensor integers(int32_t value) {
    Bytes bytes(4 * sizeof value);
    for (size_t i = 0; i < 4; ++i) std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    return to_gpu(*stream_, bytes, {4}, kInt32);
  }
  int32_t seen(const NativeTensor& value) {
    int32_t first = 0;
    std::memcpy(&first, to_host(*stream_, value).data(), sizeof first);
    return first;
  }
  void fold(const std::vector<NativeTensor>& parts, const NativeTensor& result) {
    stream_->fold(parts, ReduceOp::kSum, 1, result);
  }
  std::unique_ptr<DeviceStream> stream_;
};

TEST_F(CudaGraphTest, RunsWhatWasCapturedAsOftenAsItIsLaunchedAndNotBefore) {
  const NativeTensor sum = integers(1), add = integers(2);
  fold({add, add}, integers(0));  // compiled before
  stream_->begin_capture();
  fold({sum, add}, stream_->unowned(sum));
  const std::unique_ptr<DeviceGraph> graph = stream_->end_capture();
  EXPECT_EQ(seen(sum), 1);
  for (int i = 0; i < 3; ++i) graph->launch();
  EXPECT_EQ(seen(sum), 7);
  stream_->copy(integers(10), add);
  graph->launch();
  EXPECT_EQ(seen(sum), 17);
}

TEST_F(CudaGraphTest, ItsMemoryIsNobodyElsesWhileItLives) {
  const NativeTensor x = integers(3);
  fold({x, x}, integers(0));
  NativeTensor result;
  stream_->begin_capture();
  {
    const NativeTensor twice = stream_->allocate({4}, kInt32, nullptr);
    fold({x, x}, twice);
    result = stream_->allocate({4}, kInt32, nullptr);
    fold({twice, x}, result);
  }
  const std::unique_ptr<DeviceGraph> graph = stream_->end_capture();
  std::vector<NativeTensor> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(integers(i));
    graph->launch();
    EXPECT_EQ(seen(result), 9);
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen(others[static_cast<size_t>(i)]), i);
}

TEST_F(CudaGraphTest, WhatACaptureCannotHoldIsRefusedAndTheStreamGoesOn) {
  const NativeTensor x = integers(1);
  const std::vector<std::function<void()>> refused = {
      [&] { stream_->record(); },
      [&] { stream_->call_on_host([] {}); },
      [&] { stream_->synchronize(); },
      [&] { stream_->keep({x}); },
      [&] { stream_->copy(gpu().allocate_host({4}, kInt32), x); },
      [&] { stream_->begin_capture(); },
  };
  for (const std::function<void()>& call : refused) {
    stream_->begin_capture();
    stream_->set_zero(x);
    EXPECT_ANY_THROW(call());
    EXPECT_THROW(stream_->end_capture(), RuntimeFault);
  }
  EXPECT_EQ(seen(x), 1);
}

}  // namespace
}  // namespace dtorch::test
