// Which operators' kernels run on tensors of any device: every kernel that the operators' samples run is run, in a
// process of its own, on a device whose memory can't be touched (guarded_device.h), and must give what it gives on the
// CPU. What passes has called LibTorch through its dispatcher. The lists of runtime/kernel_source/any_device.cc must
// say the same, and so must docs/gpu.md.
#include "runtime/kernel_source/any_device.h"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "checker/sample_values.h"
#include "dtorch/kernel.h"
#include "dtorch/nn.h"
#include "io/operators.h"
#include "ops/operator_list.h"
#include "runtime/worker/native/native_metadata.h"
#include "tests/kernel_source/guarded_device.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

constexpr size_t kMaxOperators = 512;
constexpr int kMaxCalls = 3;  // of an operator that are looked at
constexpr unsigned kLimitS = 30;

enum Outcome : int { kPasses = 0, kFails = 1, kPassesAndWaits = 2 };
struct Calls {
  int passed = 0, failed = 0;
  bool waits = false;
};
std::array<KernelFn, kMaxOperators> own_kernels;
std::mutex mutex;
std::map<size_t, Calls> calls;  // under mutex

bool agree(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const bool half = a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16;
  return at::allclose(a.to(at::kDouble), b.to(at::kDouble), half ? 1e-2 : 1e-5, half ? 1e-2 : 1e-6, true);
}

// In a child.
Outcome run_guarded(size_t op, KernelContext& context) {
  at::set_num_threads(1);  // others' threads aren't here
  std::vector<NativeTensor> guarded(context.num_inputs());
  for (size_t i = 0; i < context.num_inputs(); ++i) {
    if (context.input(i)) guarded[i] = from_aten(to_guarded(as_aten(context.input(i))));
  }
  own_kernels[op](context);
  std::vector<NativeTensor> expected;
  for (size_t i = 0; i < context.num_outputs(); ++i)
    expected.push_back(context.output(i) ? from_aten(as_aten(context.output(i)).clone()) : NativeTensor());
  for (size_t i = 0; i < context.num_inputs(); ++i) const_cast<NativeTensor&>(context.input(i)) = guarded[i];
  for (size_t i = 0; i < context.num_outputs(); ++i) context.output(i) = NativeTensor();
  const int64_t looks_before = num_looks();
  own_kernels[op](context);
  const bool waits = num_looks() > looks_before;
  for (size_t i = 0; i < context.num_outputs(); ++i) {
    const NativeTensor& output = context.output(i);
    if (!output != !expected[i]) return kFails;
    if (!output) continue;
    if (!as_aten(output).is_privateuseone()) {
      std::cerr << "  output " << i << " is on the host\n";
      return kFails;
    }
    if (!agree(from_guarded(as_aten(output)), as_aten(expected[i]))) {
      std::cerr << "  output " << i << " differs\n";
      return kFails;
    }
  }
  return waits ? kPassesAndWaits : kPasses;
}

Outcome run_in_child(size_t op, KernelContext& context) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kLimitS);
    int outcome = kFails;
    try {
      outcome = run_guarded(op, context);
    } catch (const std::exception& error) {
      std::cerr << "  " << std::string(error.what()).substr(0, 200) << "\n";
    }
    ::_exit(outcome);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return kFails;
  return static_cast<Outcome>(WEXITSTATUS(status));
}

void look_and_run(size_t op, KernelContext& context) {
  std::unique_lock lock(mutex);
  Calls& of_op = calls[op];
  if (context.num_inputs() > 0 && of_op.failed == 0 && of_op.passed < kMaxCalls && context.feed() == nullptr) {
    // A child is a copy of one thread among several: what holds it up or ends it may be another's, so that it is asked
    // again before a kernel counts as one that can't.
    Outcome outcome = kFails;
    for (int attempt = 0; attempt < 2 && outcome == kFails; ++attempt) outcome = run_in_child(op, context);
    ++(outcome == kFails ? of_op.failed : of_op.passed);
    of_op.waits |= outcome == kPassesAndWaits;
    if (outcome == kFails) std::cerr << OperatorRegistry::global().at(static_cast<uint16_t>(op)).name << " can't\n";
  }
  lock.unlock();
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

// Inputs are placed as Shard(dim) where they have that dim, else on both devices.
Tensor placed(const HostTensor& value, int64_t dim) {
  const bool split = dim >= 0 && dim < value.shape().ndim();
  return from_host(value, {.mesh = cpu_mesh({2}), .placements = {split ? Placement(Shard(dim)) : Replicate()}});
}

// Results and gradients are made; what a placement forbids is left out.
void run(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& call,
         const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> results = call(inputs);
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

void run_samples(const OperatorDef& def) {
  if (def.samples == nullptr) return;
  for (const Sample& sample : def.samples()) {
    for (int64_t dim : {-1, 0, 1, 2}) {
      std::vector<Tensor> inputs;
      for (size_t i = 0; i < sample.inputs.size(); ++i) {
        inputs.push_back(placed(checker::sample_value(sample.inputs[i], i), dim));
        inputs[i].requires_grad_(sample.inputs[i].differentiable && is_floating(inputs[i].dtype()));
      }
      try {
        run(sample.call, inputs);
      } catch (const UserError& error) {
        EXPECT_GE(dim, 0) << def.name << ": " << error.what();
      }
    }
  }
}

// Operators that only functions over several devices, or optimizers, use.
void run_parallel() {
  const auto leaf = [](const Shape& shape, uint64_t seed, const Layout& layout) -> Tensor {
    Tensor x = from_host(normal(shape, kFloat64, seed), {.mesh = layout.mesh(), .placements = layout.placements()});
    return x.requires_grad_();
  };
  const DeviceMesh ring = cpu_mesh({2}, {"ring_cp"}), experts = cpu_mesh({2}, {"ep"});
  const AttentionOptions rings[] = {{}, {.is_causal = true}, {.is_causal = true, .ring_order = RingOrder::kBalanced}};
  for (const AttentionOptions& options : rings) {
    const Layout layout(ring, {Shard(2)}, 4);
    run(
        [&](const std::vector<Tensor>& in) {
          return std::vector<Tensor>{scaled_dot_product_attention(in[0], in[1], in[2], options)};
        },
        {leaf({2, 4, 6, 4}, 1, layout), leaf({2, 2, 6, 4}, 2, layout), leaf({2, 2, 6, 4}, 3, layout)});
  }
  const auto rows = [&](int64_t ndim) { return Layout(experts, {Shard(0)}, ndim); };
  run(
      [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{expert_parallel(in[0], in[1], in[2], in[3], in[4]).reduced()};
      },
      {leaf({6, 5}, 1, rows(2)), leaf({6, 4}, 2, rows(2)), leaf({4, 3, 5}, 3, rows(3)), leaf({4, 3, 5}, 4, rows(3)),
       leaf({4, 5, 3}, 5, rows(3))});
  const nn::Parameter weight(leaf({4, 3}, 6, rows(2)).detach());
  optim::SGD optimizer({weight}, {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 2; ++step) {
    sum(weight.use() * weight.use()).backward();
    nn::clip_grad_norm({weight}, 0.5);
    optimizer.step();
    optimizer.zero_grad();
  }
  weight.value().to_host();
}

// Every operator that has a kernel, by what a device runs of it.
struct Found {
  std::set<std::string> any_device, waiting, host;
};
Found look_at_operators() {
  register_io_operators();  // as a job does, when the kernels have been counted
  const OperatorRegistry& registry = OperatorRegistry::global();
  std::vector<PrepareFn> prepare;
  for (size_t i = 0; i < registry.size(); ++i) prepare.push_back(registry.at(static_cast<uint16_t>(i)).prepare);
  define_guarded_device();
  look_at_all();
  EXPECT_EQ(run_in_job(1, 2,
                       [&](Client&) {
                         for (size_t i = 0; i < registry.size(); ++i)
                           run_samples(registry.at(static_cast<uint16_t>(i)));
                         run_parallel();
                         return 0;
                       }),
            0);
  restore_all(prepare);
  Found found;
  for (size_t i = 0; i < registry.size(); ++i) {
    const OperatorDef& def = registry.at(static_cast<uint16_t>(i));
    if (def.kernel == nullptr) continue;
    const Calls& of_op = calls[i];
    if (of_op.passed > 0 && of_op.failed == 0) {
      found.any_device.insert(def.name);
      if (of_op.waits) found.waiting.insert(def.name);
    } else if (!def.elementwise && !kernel_source::has_own_kernel(def.name)) {
      found.host.insert(def.name);
    }
  }
  return found;
}

TEST(AnyDevice, ListsSayWhatRunsThere) {
  const Found found = look_at_operators();
  const OperatorRegistry& registry = OperatorRegistry::global();
  for (size_t i = 0; i < registry.size(); ++i) {
    const std::string name = registry.at(static_cast<uint16_t>(i)).name;
    EXPECT_EQ(kernel_source::runs_on_any_device(name), found.any_device.count(name) == 1) << name;
    EXPECT_EQ(kernel_source::reason_for_host(name) != nullptr, found.host.count(name) == 1) << name;
  }
  std::cout << found.any_device.size() << " operators run on any device, " << found.waiting.size()
            << " of them wait for contents:";
  for (const std::string& name : found.waiting) std::cout << ' ' << name;
  std::cout << '\n';
}

TEST(AnyDevice, DocsNameWhatRunsOnTheHost) {
  const char* const source = std::getenv("DTORCH_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  std::ifstream file(std::string(source) + "/docs/gpu.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(kernel_source::table_of_host_operators()), std::string::npos)
      << "docs/gpu.md must hold\n"
      << kernel_source::table_of_host_operators();
}

}  // namespace
}  // namespace dtorch::test
