// On one device operators equal LibTorch's: values bit for bit, where both compute the same way, and gradients
// LibTorch's autograd.
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <set>

#include "checker/sample_values.h"
#include "dtorch/kernel.h"
#include "tests/ops/libtorch_cases_aten.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
using namespace checker;
namespace {

using LibTorchTest = KernelTest;

at::Tensor to_aten(const HostTensor& host) {
  const Shape shape = host.shape();
  return at::from_blob(const_cast<std::byte*>(host.bytes()), sizes_of(shape), tensor_options(host.dtype())).clone();
}

HostTensor from_aten_host(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  HostTensor host(Shape(dense.sizes().begin(), dense.sizes().end()), dtype_from(dense.scalar_type()));
  if (host.num_bytes() > 0)
    std::memcpy(host.mutable_bytes(), dense.const_data_ptr(), static_cast<size_t>(host.num_bytes()));
  return host;
}

std::vector<HostTensor> values_of(const LibTorchCase& one) {
  std::vector<HostTensor> values;
  for (size_t i = 0; i < one.inputs.size(); ++i) values.push_back(sample_value(one.inputs[i], 31 + i));
  return values;
}

std::string name_of_case(const LibTorchCase& one) {
  std::string name = one.op;
  for (const SampleInput& input : one.inputs)
    name += std::string(" ") + name_of(input.dtype) + input.global_shape.str();
  return name;
}

TEST_F(LibTorchTest, ValuesOnOneDeviceAreLibTorchs) {
  for (const LibTorchCase& one : libtorch_cases()) {
    SCOPED_TRACE(name_of_case(one));
    std::vector<Tensor> inputs;
    std::vector<at::Tensor> aten_inputs;
    for (const HostTensor& value : values_of(one)) {
      inputs.push_back(from_host(value));
      aten_inputs.push_back(to_aten(value));
    }
    try {
      const std::vector<Tensor> ours = one.ours(inputs);
      const std::vector<at::Tensor> theirs = one.theirs(aten_inputs);
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_EQ(difference(ours[i].to_host(), from_aten_host(theirs[i]), one.value_tolerance), "");
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST_F(LibTorchTest, GradientsOnOneDeviceAreLibTorchsAutograd) {
  int64_t num_checked = 0;
  for (const LibTorchCase& one : libtorch_cases()) {
    if (one.inputs.empty()) continue;
    SCOPED_TRACE(name_of_case(one));
    std::vector<Tensor> inputs;
    std::vector<at::Tensor> aten_inputs;
    const std::vector<HostTensor> values = values_of(one);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool differentiable = one.inputs[i].differentiable && is_floating(one.inputs[i].dtype);
      inputs.push_back(from_host(values[i]).requires_grad_(differentiable));
      aten_inputs.push_back(to_aten(values[i]).set_requires_grad(differentiable));
    }
    try {
      Tensor loss;
      at::Tensor aten_loss;
      const std::vector<Tensor> ours = one.ours(inputs);
      const std::vector<at::Tensor> theirs = one.theirs(aten_inputs);
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_EQ(ours[i].requires_grad(), theirs[i].requires_grad()) << "output " << i;
        if (!ours[i].requires_grad() || !theirs[i].requires_grad()) continue;
        const HostTensor weight = normal(ours[i].shape(), ours[i].dtype(), 91 + i);
        const Tensor term = sum(ours[i] * from_host(weight));
        const at::Tensor aten_term = (theirs[i] * to_aten(weight)).sum();
        loss = loss.defined() ? loss + term : term;
        aten_loss = aten_loss.defined() ? aten_loss + aten_term : aten_term;
      }
      if (!loss.defined()) continue;
      loss.backward();
      aten_loss.backward();
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i].requires_grad()) continue;
        ASSERT_TRUE(inputs[i].grad().defined()) << "input " << i;
        const HostTensor theirs_host = from_aten_host(aten_inputs[i].grad());
        const double tolerance = ours[0].dtype() == kBFloat16 ? 1e-2 : 3 * default_tolerance(theirs_host.dtype());
        EXPECT_EQ(difference(inputs[i].grad().to_host(), theirs_host, tolerance), "") << "gradient of input " << i;
        ++num_checked;
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GT(num_checked, 100);
}

TEST_F(LibTorchTest, EveryOperatorWithSamplesIsComparedOrItsFileSaysWhyNot) {
  std::set<std::string> known;
  for (const LibTorchCase& one : libtorch_cases()) known.insert(one.op);
  for (const auto& [op, reason] : without_libtorch_counterpart()) {
    EXPECT_FALSE(reason.empty());
    EXPECT_TRUE(known.insert(op).second) << op << " is compared, and yet listed as having no counterpart";
  }
  const OperatorRegistry& registry = OperatorRegistry::global();
  for (uint16_t index = 0; index < registry.size(); ++index) {
    const OperatorDef& op = registry.at(index);
    EXPECT_TRUE(op.samples == nullptr || known.contains(op.name)) << op.name;
  }
  for (const std::string& name : known) EXPECT_NE(registry.find(name), nullptr) << name << " isn't registered";
}

}  // namespace
}  // namespace dtorch::test
