// Operators' kernels on a GPU against the CPU's.
#include <cmath>
#include <cstring>

#include "dtorch/kernel.h"
#include "ops/math/operators.h"
#include "tests/cuda/gpu.h"
#include "tests/kernel_source/calls.h"

namespace dtorch::test {
namespace {

using Bytes = std::vector<std::byte>;
using CudaKernelsTest = GpuTest;

// Largest difference of two values, relative to the larger; 0 for equal bits and two NaNs.
double largest_difference(const Bytes& a, const Bytes& b, DType dtype) {
  double largest = 0;
  visit_dtype(dtype, [&]<class T>() {
    for (size_t i = 0; i < a.size() / sizeof(T); ++i) {
      T left, right;
      std::memcpy(&left, a.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&right, b.data() + i * sizeof(T), sizeof(T));
      const auto x = static_cast<double>(left), y = static_cast<double>(right);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      largest =
          std::max(largest, std::isfinite(x - y) ? std::abs(x - y) / std::max({std::abs(x), std::abs(y), 1e-6}) : 1);
    }
  });
  return largest;
}

double tolerance_of(DType dtype) {
  if (dtype == kFloat64) return 1e-13;
  if (dtype == kFloat32) return 2e-6;
  return is_floating(dtype) ? 2e-2 : 0;
}

TEST_F(CudaKernelsTest, EveryElementwiseOperatorOnEveryDtype) {
  constexpr int64_t kElements = 1001;
  const auto stream = gpu().new_stream(StreamKind::kCompute);
  int wrong = 0;
  const std::deque<ElementwiseCall> calls = all_elementwise_calls(kElements);
  for (const ElementwiseCall& call : calls) {
    std::vector<Bytes> bytes;
    std::vector<NativeTensor> inputs;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const int64_t count = call.inputs[i].is_single ? 1 : kElements;
      bytes.push_back(values_of(call.inputs[i].dtype, count, static_cast<uint32_t>(i + 1)));
      inputs.push_back(to_gpu(*stream, bytes.back(), {count}, call.inputs[i].dtype));
    }
    const Bytes expected = run_on_cpu(call, bytes, kElements);
    const std::vector<OperandId> ids(inputs.size(), 0);
    NativeTensor output;
    stream->launch({.kernel = library().kernel_of(*call.def),
                    .local = call.local,
                    .inputs = inputs,
                    .outputs = {&output, 1},
                    .scalars = call.scalars,
                    .operands = ids});
    const DType dtype = call.spec.outputs[0]->dtype;
    const double difference = largest_difference(to_host(*stream, output), expected, dtype);
    if (difference > tolerance_of(dtype) && ++wrong < 20) ADD_FAILURE() << call.what << ": " << difference;
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(CudaKernelsTest, RunsOfOperatorsAreOneKernel) {
  constexpr int64_t kElements = 4099;
  const auto stream = gpu().new_stream(StreamKind::kCompute);
  // relu(x y) + x, all float32.
  const std::string two = encode_attributes(math::BinaryAttrs{}), one = encode_attributes(NoAttrs{});
  std::deque<ElementwiseCall> calls(3);
  ASSERT_TRUE(make_call(calls[0], "mul", two, {{kFloat32}, {kFloat32}}, {}, kElements));
  ASSERT_TRUE(make_call(calls[1], "relu", one, {{kFloat32}}, {}, kElements));
  ASSERT_TRUE(make_call(calls[2], "add", two, {{kFloat32}, {kFloat32}}, {}, kElements));
  FusedProgram program;
  program.num_elements = kElements;
  program.inputs = {{kFloat32, false}, {kFloat32, false}};
  program.members = {{calls[0].def, &calls[0].local, {0, 1}, 0},
                     {calls[1].def, &calls[1].local, {2}, 0},
                     {calls[2].def, &calls[2].local, {3, 0}, 0}};
  program.outputs = {2, 4};
  const auto kernel = stream->fuse(program);
  ASSERT_NE(kernel, nullptr);
  const Bytes x = values_of(kFloat32, kElements, 1), y = values_of(kFloat32, kElements, 2);
  const Bytes product = run_on_cpu(calls[0], {x, y}, kElements);
  const Bytes sum = run_on_cpu(calls[2], {run_on_cpu(calls[1], {product}, kElements), x}, kElements);
  const NativeTensor on_gpu[] = {to_gpu(*stream, x, {kElements}, kFloat32), to_gpu(*stream, y, {kElements}, kFloat32)};
  const NativeTensor results[] = {stream->allocate({kElements}, kFloat32, nullptr),
                                  stream->allocate({kElements}, kFloat32, nullptr)};
  std::byte* const inputs[] = {on_gpu[0].data(), on_gpu[1].data()};
  std::byte* const outputs[] = {results[0].data(), results[1].data()};
  kernel->set_scalars({});
  kernel->run(inputs, outputs, nullptr);
  EXPECT_EQ(to_host(*stream, results[0]), product);
  EXPECT_EQ(to_host(*stream, results[1]), sum);
}

}  // namespace
}  // namespace dtorch::test
