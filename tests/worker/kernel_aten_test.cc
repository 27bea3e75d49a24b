// Kernels with LibTorch: dtorch/kernel.h, and how the worker runs them.
#include "dtorch/kernel.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/worker/device_backend.h"
#include "runtime/worker/native/native_memory.h"
#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh one_device = init_device_mesh("cpu", {1});

OperatorDef* def(const char* name, KernelFn kernel) {
  auto* result = new OperatorDef;  // lives as long as the process, like any operator
  result->name = name;
  result->kernel = kernel;
  OperatorRegistry::global().add(*result);
  return result;
}

TEST(AtenKernel, SeesAnInputWithoutTakingAReferenceAndGivesItsOutputAway) {
  NativeTensor x = from_aten(at::full({2, 3}, 1.5));
  const at::Tensor& borrowed = as_aten(x);
  EXPECT_EQ(borrowed.use_count(), 1u);
  EXPECT_EQ(borrowed.sum().item<float>(), 9.0f);
  EXPECT_TRUE(x.is_sole_owner());
  EXPECT_EQ(x.str(), "float32 [2, 3]");
  at::Tensor again = borrowed;
  EXPECT_FALSE(x.is_sole_owner());
  EXPECT_THROW(as_aten(NativeTensor()), InternalError);
  EXPECT_FALSE(from_aten(at::Tensor()));
}

TEST(AtenKernel, EveryTypeHasACounterpart) {
  for (int code = 0; code < kNumDTypes; ++code) {
    auto dtype = static_cast<DType>(code);
    EXPECT_EQ(dtype_from(scalar_type(dtype)), dtype);
    NativeTensor x = NativeTensor::empty({2}, dtype);
    EXPECT_EQ(x.dtype(), dtype);
    EXPECT_EQ(as_aten(x).element_size(), size_of(dtype));
  }
  EXPECT_THROW(dtype_from(at::kComplexFloat), DTypeError);
}

TEST(AtenKernel, AViewOfAPartIsATensorLikeAnyOther) {
  NativeTensor x = from_aten(at::full({4, 4}, 2.0));
  NativeTensor view = x.narrowed({{1, 2}, {2, 2}});
  EXPECT_EQ(as_aten(view).add(1).sum().item<float>(), 12.0f);
}

// Where a tensor begins depends on time: an allocator's choice, memory that a call took over or didn't.
TEST(AtenKernel, AProductDoesNotDependOnWhereItsOperandsBegin) {
  const std::unique_ptr<DeviceBackend> backend = make_cpu_backend();
  MemoryCounter memory;
  const auto scope = backend->enter_thread(1, &memory);
  const auto moved = [](const at::Tensor& tensor, int64_t offset) {
    at::Tensor view = at::empty({tensor.numel() + 16}, tensor.options()).narrow(0, offset, tensor.numel());
    return view.view(tensor.sizes()).copy_(tensor);
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 16, 16}, {2, 32, 16}, {32, 43, 33}}) {
      const at::Tensor a = at::rand({m, k}, dtype), b = at::rand({n, k}, dtype);
      const at::Tensor expected = at::mm(moved(a, 0), moved(b, 0).t());
      for (int64_t offset : {1, 2, 4, 8}) {
        EXPECT_TRUE(at::mm(moved(a, offset), moved(b, 0).t()).equal(expected)) << m << " a " << offset;
        EXPECT_TRUE(at::mm(moved(a, 0), moved(b, offset).t()).equal(expected)) << m << " b " << offset;
      }
    }
  }
}

TEST(AtenKernel, RunsWithTheDevicesThreadsAndCountsWhatItAllocates) {
  static std::atomic<int> threads{0};
  static std::atomic<bool> inference{false};
  static const OperatorDef* probe = def("aten.probe", [](KernelContext& context) {
    threads = at::get_num_threads();
    inference = c10::InferenceMode::is_enabled();
    at::Tensor temporary = at::zeros({1000}, tensor_options(kFloat64));
    set_output(context, 0, at::zeros(output_sizes(context, 0), tensor_options(kFloat64)));
  });
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {100}, {Replicate()}, kFloat64);
  PieceWriter writer;
  writer.call(probe, {}, {{0, x}});
  cluster.wait_for(cluster.send(writer));
  EXPECT_TRUE(cluster.errors().empty());
  EXPECT_EQ(threads, 1);
  EXPECT_TRUE(inference);
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 800);
  EXPECT_GE(cluster.last_ack(0).peak_bytes, 8800);
}

TEST(AtenKernel, ErrorsOfLibTorchAreReportedInOneLine) {
  static const OperatorDef* broken = def(
      "aten.broken", [](KernelContext& context) { set_output(context, 0, at::add(at::zeros({2}), at::zeros({3}))); });
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()}, kFloat32);
  PieceWriter writer;
  writer.call(broken, {}, {{0, x}});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_NE(cluster.errors()[0].message.find("must match the size of tensor b (3)"), std::string::npos);
  EXPECT_EQ(cluster.errors()[0].message.find('\n'), std::string::npos);
}

TEST(AtenKernel, AnOperatorWithoutAKernelIsReportedWithItsName) {
  static const OperatorDef* none = def("aten.none", nullptr);
  Cluster cluster({0});
  const TensorMeta* x = meta(one_device, {2}, {Replicate()});
  PieceWriter writer;
  writer.call(none, {}, {{0, x}});
  cluster.send(writer);
  cluster.wait_for_errors(1);
  EXPECT_NE(cluster.errors()[0].message.find("aten.none"), std::string::npos);
}

}  // namespace
}  // namespace dtorch::testing_worker
