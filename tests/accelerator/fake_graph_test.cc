// Graphs of the fake device: what was captured runs again on the same memory, and what a GPU's capture can't hold is
// refused.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "runtime/accelerator/fake/fake_faults.h"
#include "runtime/accelerator/fake/fake_library.h"
#include "runtime/worker/native/native_memory.h"
#include "tests/accelerator/setup.h"

namespace dtorch::fake {
namespace {

class FakeGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = make_library(setup_for_tests());
    stream_ = accelerator().new_stream(StreamKind::kCompute);
  }
  void TearDown() override { plant({}); }
  Accelerator& accelerator() { return library_->accelerator(0); }
  NativeTensor host(float value) {
    NativeTensor tensor = accelerator().allocate_host({4}, kFloat32);
    for (int i = 0; i < 4; ++i) reinterpret_cast<float*>(tensor.data())[i] = value;
    return tensor;
  }
  NativeTensor on_device(float value) {
    NativeTensor tensor = stream_->allocate({4}, kFloat32, nullptr);
    stream_->copy(host(value), tensor);
    return tensor;
  }
  float seen(const NativeTensor& value) {
    const NativeTensor copy = host(0);
    stream_->copy(value, copy);
    stream_->synchronize();
    float first = 0;
    std::memcpy(&first, copy.data(), sizeof first);
    return first;
  }
  void fold(const std::vector<NativeTensor>& parts, const NativeTensor& result) {
    stream_->fold(parts, ReduceOp::kSum, 1, result);
  }

  std::shared_ptr<AcceleratorLibrary> library_;
  std::unique_ptr<DeviceStream> stream_;
};

TEST_F(FakeGraph, RunsWhatWasCapturedAsOftenAsItIsLaunchedAndNotBefore) {
  const NativeTensor sum = on_device(1), add = on_device(2);
  stream_->begin_capture();
  fold({sum, add}, sum);
  const std::unique_ptr<DeviceGraph> graph = stream_->end_capture();
  EXPECT_EQ(seen(sum), 1);
  for (int i = 0; i < 3; ++i) graph->launch();
  EXPECT_EQ(seen(sum), 7);
  stream_->copy(host(10), add);
  graph->launch();
  EXPECT_EQ(seen(sum), 17);
}

TEST_F(FakeGraph, TemporariesDieInEveryLaunchAndAreThereInTheNext) {
  const NativeTensor x = on_device(3);
  NativeTensor result;
  stream_->begin_capture();
  {
    const NativeTensor twice = stream_->allocate({4}, kFloat32, nullptr);
    fold({x, x}, twice);
    result = stream_->allocate({4}, kFloat32, nullptr);
    fold({twice, x}, result);
  }
  const std::unique_ptr<DeviceGraph> graph = stream_->end_capture();
  for (float value : {3.0f, 5.0f, 7.0f}) {
    stream_->copy(host(value), x);
    graph->launch();
    EXPECT_EQ(seen(result), 3 * value);
  }
}

TEST_F(FakeGraph, AnUnownedTensorIsTheSameMemory) {
  const NativeTensor x = on_device(3);
  stream_->set_zero(stream_->unowned(x.narrowed({Shape{1}, Shape{2}})));
  const NativeTensor copy = host(9);
  stream_->copy(stream_->unowned(x), copy);
  stream_->synchronize();
  std::vector<float> values(4);
  std::memcpy(values.data(), copy.data(), sizeof(float) * values.size());
  EXPECT_EQ(values, (std::vector<float>{3, 0, 0, 3}));
  EXPECT_TRUE(x.is_sole_owner());
}

TEST_F(FakeGraph, WhatAGpuCannotCaptureIsRefused) {
  const NativeTensor x = on_device(1), from_host = host(1);
  const auto other = accelerator().new_stream(StreamKind::kCommunication);
  const DeviceEventPtr event = other->record();
  const std::vector<std::pair<std::string, std::function<void()>>> refused = {
      {"event", [&] { stream_->record(); }},
      {"wait for another stream", [&] { stream_->wait(event); }},
      {"call on the host", [&] { stream_->call_on_host([] {}); }},
      {"wait for the device", [&] { stream_->synchronize(); }},
      {"value of another stream", [&] { stream_->share(x); }},
      {"handles", [&] { stream_->keep({x}); }},
      {"copy of host memory", [&] { stream_->copy(from_host, x); }},
      {"copy of host memory", [&] { stream_->copy(x, from_host); }},
      {"allocation of host memory", [&] { accelerator().allocate_host({1}, kFloat32); }},
      {"another capture", [&] { stream_->begin_capture(); }},
  };
  for (const auto& [what, call] : refused) {
    SCOPED_TRACE(what);
    stream_->begin_capture();
    stream_->set_zero(x);
    EXPECT_THROW(call(), RuntimeFault);
    try {
      stream_->end_capture();
      ADD_FAILURE() << "a void capture became a graph";
    } catch (const RuntimeFault& fault) {
      EXPECT_NE(std::string(fault.what()).find(what), std::string::npos) << fault.what();
    }
  }
  EXPECT_EQ(seen(x), 1);
}

TEST_F(FakeGraph, OtherThreadsAreNotCaptured) {
  const NativeTensor x = on_device(1);
  stream_->begin_capture();
  stream_->set_zero(x);
  std::thread([&] {
    auto other = accelerator().new_stream(StreamKind::kCompute);
    other->synchronize();
    stream_->copy(host(5), x);
  }).join();
  const std::unique_ptr<DeviceGraph> graph = stream_->end_capture();
  EXPECT_EQ(seen(x), 5);
  graph->launch();
  EXPECT_EQ(seen(x), 0);
}

TEST_F(FakeGraph, AFailureInALaunchIsOfTheOperatorsNumberThere) {
  std::vector<StreamMark> failed;
  stream_->set_failure_handler([&](const StreamMark& mark, const std::string&) { failed.push_back(mark); });
  const NativeTensor x = on_device(1);
  static const OperatorSpec spec;
  LocalOperator local;
  local.spec = &spec;
  stream_->mark({7, 20});
  stream_->begin_capture();
  stream_->set_zero(x);
  stream_->mark({7, 23});
  stream_->launch({.kernel = [](KernelContext&) { throw RuntimeFault("no"); },
                   .local = local,
                   .inputs = {},
                   .outputs = {},
                   .scalars = {},
                   .operands = {}});
  const std::unique_ptr<DeviceGraph> graph = stream_->end_capture();
  stream_->mark({9, 2});
  graph->launch();
  stream_->synchronize();
  EXPECT_EQ(failed, (std::vector<StreamMark>{{9, 5}}));
}

TEST_F(FakeGraph, AnInputThatIsNotBroughtToItsPlaceIsAFaultThatCanBePlanted) {
  const NativeTensor place = on_device(1);
  const NativeTensor result = on_device(0);
  stream_->begin_capture();
  fold({place, place}, result);
  const std::unique_ptr<DeviceGraph> graph = stream_->end_capture();
  const NativeTensor next = on_device(4);
  Faults faults;
  faults.missing_graph_input = true;
  plant(faults);
  stream_->copy(next, place);
  graph->launch();
  EXPECT_EQ(seen(result), 2);
  plant({});
  stream_->copy(next, place);
  graph->launch();
  EXPECT_EQ(seen(result), 8);
}

}  // namespace
}  // namespace dtorch::fake
