// The generated AdamW step against the CPU's operator.
#include "runtime/kernel_source/step_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "dtorch/kernel.h"
#include "ops/nn/list_attrs.h"
#include "runtime/kernel_source/prelude.h"
#include "tests/kernel_source/calls.h"
#include "tests/kernel_source/host_kernels.h"

namespace dtorch::test {
namespace {

using namespace kernel_source;

constexpr DType kFloats[] = {kFloat16, kBFloat16, kFloat32, kFloat64};
constexpr int64_t kSizes[] = {37, 1, 300};
constexpr size_t kCount = std::size(kSizes), kKinds = 4;  // params, gradients, means, squares
constexpr double kLr = 0.01;

const HostKernels& kernels() {
  struct Sources {
    std::string text;
    std::vector<std::string> names;
    Sources() {
      for (DType dtype : kFloats) {
        text += adamw_source(dtype).text;
        names.push_back(adamw_source(dtype).name);
      }
    }
  };
  static const Sources sources;
  static const HostKernels compiled(sources.text, sources.names);
  return compiled;
}

struct Step {
  nn_ops::ListAttrs attributes{
      .count = kCount, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .momentum = 0};
  std::vector<std::vector<std::byte>> inputs;  // kinds of kCount each

  explicit Step(DType dtype) {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      for (size_t i = 0; i < kCount; ++i) {
        inputs.push_back(values_of(dtype, kSizes[i], static_cast<uint32_t>(10 * kind + i)));
        if (kind + 1 < kKinds) continue;
        visit_dtype(dtype, [&]<class T>() {  // squares aren't negative
          auto* values = reinterpret_cast<T*>(inputs.back().data());
          for (int64_t e = 0; e < kSizes[i]; ++e) values[e] = T(std::abs(static_cast<float>(values[e])));
        });
      }
    }
  }

  // What the operator makes: params, means, squares.
  std::vector<std::vector<std::byte>> on_cpu(DType dtype, int64_t number) const {
    const OperatorDef& def = *OperatorRegistry::global().find("adamw_step");
    LocalOperator local;
    local.op = def.index;
    local.attributes = std::make_shared<const nn_ops::ListAttrs>(attributes);
    std::vector<NativeTensor> in, out(3 * kCount);
    for (size_t i = 0; i < inputs.size(); ++i) {
      in.push_back(NativeTensor::empty({kSizes[i % kCount]}, dtype));
      std::memcpy(in.back().data(), inputs[i].data(), inputs[i].size());
    }
    const Scalar scalars[] = {Scalar::of(kLr), Scalar::of_int(number)};
    const std::vector<OperandId> ids(in.size(), 0);
    KernelContext context(local, in, out, scalars, ids, nullptr);
    def.kernel(context);
    std::vector<std::vector<std::byte>> results;
    for (const NativeTensor& tensor : out) results.emplace_back(tensor.data(), tensor.data() + tensor.num_bytes());
    return results;
  }

  // number: what the device knows; null: the host knows `step`.
  std::vector<std::vector<std::byte>> generated(DType dtype, const int64_t* number, int64_t step) const {
    std::vector<std::vector<std::byte>> results(3 * kCount);
    AdamwList list;
    for (size_t i = 0; i < kCount; ++i) {
      for (size_t kind = 0; kind < 3; ++kind) results[kind * kCount + i].resize(inputs[i].size());
      list.tensors[i] = {
          inputs[i].data(),  inputs[kCount + i].data(),  inputs[2 * kCount + i].data(),  inputs[3 * kCount + i].data(),
          results[i].data(), results[kCount + i].data(), results[2 * kCount + i].data(), kSizes[i]};
    }
    double beta1 = attributes.beta1, beta2 = attributes.beta2, eps = attributes.eps, lr = kLr;
    double rest1 = 1 - beta1, rest2 = 1 - beta2, keep = 1 - lr * attributes.weight_decay;
    double size = lr / (1 - std::pow(beta1, static_cast<double>(step)));
    double root = std::sqrt(1 - std::pow(beta2, static_cast<double>(step)));
    kernels().run(adamw_source(dtype).name,
                  {&list, &beta1, &rest1, &beta2, &rest2, &eps, &keep, &size, &root, &number, &lr}, 7, kCount);
    return results;
  }
};

TEST(AdamwSource, GivesTheCpusBits) {
  for (DType dtype : kFloats) {
    const Step step(dtype);
    EXPECT_EQ(step.generated(dtype, nullptr, 3), step.on_cpu(dtype, 3)) << name_of(dtype);
  }
}

TEST(AdamwSource, TakesTheStepsNumberFromTheDevice) {
  for (DType dtype : kFloats) {
    const Step step(dtype);
    const int64_t five = 5, none = 0;
    EXPECT_EQ(step.generated(dtype, &five, 1), step.on_cpu(dtype, 5)) << name_of(dtype);
    // No step: everything stays.
    EXPECT_EQ(step.generated(dtype, &none, 1), step.on_cpu(dtype, 0)) << name_of(dtype);
  }
}

}  // namespace
}  // namespace dtorch::test
