// An operator that has no kernel for GPUs, run on the host in the stream's order: inputs are copied to pinned memory,
// the driver calls the operator's own kernel, results are copied back. Nothing waits but for results whose sizes are
// data.
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "dtorch/kernel.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/cuda_memory.h"
#include "runtime/cuda/cuda_stream.h"

namespace dtorch::cuda {
namespace {

struct HostCall {
  KernelFn kernel = nullptr;
  const LocalOperator* local = nullptr;
  std::vector<NativeTensor> inputs, outputs;  // on the host; outputs: as the kernel made them
  std::vector<NativeTensor> results;          // pinned
  std::vector<Scalar> scalars;
  std::vector<OperandId> operands;
  CudaStream* stream = nullptr;
  StreamMark mark;

  void run() {
    const c10::InferenceMode inference;
    KernelContext context(*local, inputs, outputs, scalars, operands, nullptr);
    kernel(context);
  }
  // In the driver's thread, so that nothing may leave it.
  void run_and_hand_over() noexcept {
    std::string what;
    try {
      run();
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (outputs[i]) as_aten(results[i]).copy_(as_aten(outputs[i]));
      }
      outputs.clear();
      return;
    } catch (const c10::Error& error) {
      what = error.what_without_backtrace();
    } catch (const std::exception& error) {
      what = error.what();
    }
    stream->tell_failure(mark, what.substr(0, what.find('\n')));
  }
};

void run_call(void* call) { static_cast<HostCall*>(call)->run_and_hand_over(); }

// With the inputs' copies to the host under way.
std::shared_ptr<HostCall> begin_call(const KernelLaunch& launch, CudaStream& stream) {
  auto call = std::make_shared<HostCall>();
  const KernelFn own = host_kernel_of(launch.local.op);
  call->kernel = own != nullptr ? own : launch.kernel;
  call->local = &launch.local;
  call->scalars.assign(launch.scalars.begin(), launch.scalars.end());
  call->stream = &stream;
  call->mark = stream.marking();
  for (const NativeTensor& input : launch.inputs) {
    NativeTensor& copied = call->inputs.emplace_back();
    if (!input) continue;
    copied = stream.accelerator().allocate_host(input.local_shape(), input.dtype());
    stream.copy(input, copied);
  }
  call->operands.assign(call->inputs.size(), 0);
  call->outputs.resize(launch.outputs.size());
  return call;
}

}  // namespace

void run_and_wait(const KernelLaunch& launch, CudaStream& stream) {
  const std::shared_ptr<HostCall> call = begin_call(launch, stream);
  stream.synchronize();
  call->run();
  for (size_t i = 0; i < call->outputs.size(); ++i) {
    if (!call->outputs[i]) continue;
    launch.outputs[i] = to_device(call->outputs[i], stream);
    if (launch.memory != nullptr) charge(launch.outputs[i], *launch.memory);
  }
}

void run_on_host(KernelContext& context) {
  CudaStream& stream = CudaStream::current();
  const std::shared_ptr<HostCall> call = begin_call(CudaStream::current_call(), stream);
  for (size_t i = 0; i < context.num_outputs(); ++i)
    call->results.push_back(
        stream.accelerator().allocate_host(context.output_box(i).size, context.output_meta(i).dtype));
  DTORCH_CUDA(cudaLaunchHostFunc(stream.get(), run_call, call.get()));
  for (size_t i = 0; i < context.num_outputs(); ++i) context.output(i) = to_device(call->results[i], stream);
  stream.call_on_host([call] {});
}

}  // namespace dtorch::cuda
