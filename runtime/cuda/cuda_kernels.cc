#include "runtime/cuda/cuda_kernels.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "dtorch/kernel.h"
#include "runtime/cuda/cuda_memory.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/kernel_source/any_device.h"
#include "runtime/kernel_source/fused_source.h"

namespace dtorch::cuda {
namespace {

struct Own {
  const char* op;
  KernelFn kernel;
};
constexpr Own kOwn[] = {
    {"rand", rand_kernel},       {"randn", randn_kernel},      {"randint", randint_kernel},
    {"dropout", dropout_kernel}, {"adamw_step", adamw_kernel}, {"full", full_kernel},
};

const Own* find_own(const OperatorDef& def) {
  const auto* own = std::ranges::find_if(kOwn, [&](const Own& o) { return std::string_view(o.op) == def.name; });
  return own == std::end(kOwn) ? nullptr : own;
}

// Of the program, by OperatorDef::index. Written by whoever asks for a kernel, before it is run.
constexpr size_t kMaxOperators = 1 << 16;
std::array<std::atomic<KernelFn>, kMaxOperators>& host_kernels() {
  static auto* kernels = new std::array<std::atomic<KernelFn>, kMaxOperators>();
  return *kernels;
}
std::array<std::atomic<const OperatorDef*>, kMaxOperators>& definitions() {
  static auto* all = new std::array<std::atomic<const OperatorDef*>, kMaxOperators>();
  return *all;
}

// An operand of an elementwise call, laid out as generated code reads it.
NativeTensor laid_out(const NativeTensor& input, const Shape& shape) {
  const at::Tensor& tensor = as_aten(input);
  const bool is_single = input.num_elements() == 1 && input.local_shape() != shape;
  if (is_single || (input.local_shape() == shape && input.is_contiguous())) return input;
  return from_aten(tensor.expand(sizes_of(shape)).contiguous());
}

}  // namespace

Way way_of(const OperatorDef& def) {
  if (def.kernel == nullptr) return Way::kNone;
  if (find_own(def) != nullptr) return Way::kOwn;
  if (def.elementwise) return Way::kGenerated;
  return kernel_source::runs_on_any_device(def.name) ? Way::kLibTorch : Way::kHost;
}

KernelFn kernel_for(const OperatorDef& def) {
  DTORCH_CHECK((find_own(def) != nullptr) == kernel_source::has_own_kernel(def.name), def.name);
  host_kernels()[def.index] = def.kernel;
  definitions()[def.index] = &def;
  switch (way_of(def)) {
    case Way::kNone:
      break;
    case Way::kOwn:
      return find_own(def)->kernel;
    case Way::kGenerated:
      return elementwise_kernel;
    case Way::kLibTorch:
      return libtorch_kernel;
    case Way::kHost:
      return run_on_host;
  }
  return nullptr;
}

KernelFn host_kernel_of(uint16_t op) { return host_kernels()[op]; }

void elementwise_kernel(KernelContext& context) {
  CudaStream& stream = CudaStream::current();
  const KernelLaunch& call = CudaStream::current_call();
  const OperatorDef& def = *definitions()[call.local.op];
  FusedKernel* kernel = stream.kernel_of_call(call.local, def, static_cast<uint32_t>(call.scalars.size()));
  if (kernel == nullptr)
    return kernel_source::runs_on_any_device(def.name) ? libtorch_kernel(context) : run_on_host(context);
  const Shape& shape = context.output_box(0).size;
  NativeTensor result;
  for (uint32_t i : kernel->may_overwrite(0)) {
    if (!context.may_reuse(i) || !context.input(i).is_contiguous()) continue;
    result = context.input(i);
    break;
  }
  // Held until the kernel is enqueued: the result's memory must not be one of them.
  std::vector<NativeTensor> inputs;
  std::vector<std::byte*> pointers;
  for (size_t i = 0; i < context.num_inputs(); ++i) {
    inputs.push_back(laid_out(context.input(i), shape));
    pointers.push_back(inputs.back().data());
  }
  if (!result) result = stream.allocate(shape, context.output_meta(0).dtype, nullptr);
  kernel->set_scalars(call.scalars);
  std::byte* to = result.data();
  kernel->run(pointers, {&to, 1}, nullptr);
  context.output(0) = std::move(result);
}

// Integers' matrix products and some more LibTorch has for the CPU only, which is said before anything is written.
void libtorch_kernel(KernelContext& context) {
  try {
    host_kernel_of(CudaStream::current_call().local.op)(context);
  } catch (const c10::Error& error) {
    const bool is_missing =
        dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr ||
        std::string_view(error.what_without_backtrace()).find("not implemented for") != std::string_view::npos;
    if (!is_missing) throw;
    for (size_t i = 0; i < context.num_outputs(); ++i) context.output(i) = NativeTensor();
    run_on_host(context);
  }
}

NativeTensor to_device(const NativeTensor& value, CudaStream& stream) {
  NativeTensor result = stream.allocate(value.local_shape(), value.dtype(), nullptr);
  stream.copy(value, result);
  return result;
}

}  // namespace dtorch::cuda
