// Which operators' kernels run on tensors of any device: every kernel that the operators' samples run is run, in a
// process of its own, on tensors of LibTorch's device "meta", which has no memory. What passes has called LibTorch
// through its dispatcher and has looked at no contents. What is listed must pass; what else passes is told.
#include "runtime/kernel_source/any_device.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "checker/sample_values.h"
#include "dtorch/kernel.h"
#include "ops/operator_list.h"
#include "runtime/worker/native/native_metadata.h"
#include "tests/support/cluster.h"

namespace dtorch::test {
namespace {

constexpr size_t kMaxOperators = 512;
constexpr int kMaxLooks = 4;  // calls of an operator that are looked at

struct Looks {
  int passed = 0, failed = 0;
};
std::array<KernelFn, kMaxOperators> own_kernels;
std::map<size_t, Looks> looks;  // by the one device's thread

// In a child: 0 when the kernel gives the results' sizes on the device without memory.
int run_without_memory(size_t op, KernelContext& context) {
  try {
    for (size_t i = 0; i < context.num_inputs(); ++i) {
      auto& operand = const_cast<NativeTensor&>(context.input(i));
      if (!operand) continue;
      const at::Tensor& tensor = as_aten(operand);
      operand = from_aten(at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta)));
    }
    own_kernels[op](context);
    for (size_t i = 0; i < context.num_outputs(); ++i) {
      const NativeTensor& output = context.output(i);
      if (!output || !as_aten(output).is_meta()) return 1;
      if (!has_metadata(output, context.output_box(i).size, context.output_meta(i).dtype)) return 1;
    }
    return 0;
  } catch (...) {
    return 1;  // told by the exit code
  }
}

bool child_passes(size_t op, KernelContext& context) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run_without_memory(op, context));
  int status = 1;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void look_and_run(size_t op, KernelContext& context) {
  Looks& of_op = looks[op];
  if (context.num_inputs() > 0 && of_op.failed == 0 && of_op.passed < kMaxLooks && context.feed() == nullptr) {
    // A child is a copy of one thread among several: what holds it up or ends it may be another's, so that it is asked
    // again before a kernel counts as one that can't.
    bool passes = false;
    for (int attempt = 0; attempt < 3 && !passes; ++attempt) passes = child_passes(op, context);
    ++(passes ? of_op.passed : of_op.failed);
  }
  own_kernels[op](context);
}

template <size_t kOp>
void looking_kernel(KernelContext& context) {
  look_and_run(kOp, context);
}
template <size_t... kOps>
constexpr std::array<KernelFn, sizeof...(kOps)> looking_kernels(std::index_sequence<kOps...>) {
  return {looking_kernel<kOps>...};
}
constexpr auto kLooking = looking_kernels(std::make_index_sequence<kMaxOperators>());

// Every operator's kernel is looked at from now on.
void look_at_all() {
  const OperatorRegistry& registry = OperatorRegistry::global();
  ASSERT_LE(registry.size(), kMaxOperators);
  for (size_t i = 0; i < registry.size(); ++i) {
    auto& def = const_cast<OperatorDef&>(registry.at(static_cast<uint16_t>(i)));
    own_kernels[i] = def.kernel;
    if (def.kernel != nullptr) def.kernel = kLooking[i];
    def.prepare = nullptr;
  }
}
void restore_all(const std::vector<PrepareFn>& prepare) {
  const OperatorRegistry& registry = OperatorRegistry::global();
  for (size_t i = 0; i < registry.size(); ++i) {
    auto& def = const_cast<OperatorDef&>(registry.at(static_cast<uint16_t>(i)));
    def.kernel = own_kernels[i];
    def.prepare = prepare[i];
  }
}

void run_samples(const OperatorDef& def) {
  if (def.samples == nullptr) return;
  for (const Sample& sample : def.samples()) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      inputs.push_back(from_host(checker::sample_value(sample.inputs[i], i)));
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i].requires_grad_(sample.inputs[i].differentiable && is_floating(inputs[i].dtype()));
    const std::vector<Tensor> results = sample.call(inputs);
    Tensor loss;
    for (const Tensor& result : results) {
      result.to_host();
      if (!result.requires_grad() || !is_floating(result.dtype())) continue;
      const Tensor part = result.to(kFloat64).sum();
      loss = loss.defined() ? loss + part : part;
    }
    if (loss.defined()) loss.backward();
    for (const Tensor& input : inputs) {
      if (loss.defined() && input.grad().defined()) input.grad().to_host();
    }
  }
}

TEST(AnyDevice, WhatIsListedRunsWithoutMemory) {
  const OperatorRegistry& registry = OperatorRegistry::global();
  std::vector<PrepareFn> prepare;
  for (size_t i = 0; i < registry.size(); ++i) prepare.push_back(registry.at(static_cast<uint16_t>(i)).prepare);
  look_at_all();
  EXPECT_EQ(run_in_job(1, 1,
                       [&](Client&) {
                         for (size_t i = 0; i < registry.size(); ++i)
                           run_samples(registry.at(static_cast<uint16_t>(i)));
                         return 0;
                       }),
            0);
  restore_all(prepare);
  std::set<std::string> found, listed;
  for (size_t i = 0; i < registry.size(); ++i) {
    const std::string name = registry.at(static_cast<uint16_t>(i)).name;
    if (looks[i].passed > 0 && looks[i].failed == 0) found.insert(name);
    if (kernel_source::runs_on_any_device(name)) listed.insert(name);
  }
  EXPECT_GE(found.size(), 20u);
  for (const std::string& name : found) {
    if (listed.count(name) == 0) std::cout << name << " runs on any device and is not listed\n";
  }
  for (const std::string& name : listed) EXPECT_TRUE(found.count(name)) << name << " is listed and doesn't";
}

}  // namespace
}  // namespace dtorch::test
