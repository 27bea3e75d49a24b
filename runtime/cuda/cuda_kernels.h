// Operators' kernels on CUDA. An operator runs, in this order of preference, by a kernel of our own (random values,
// dropout, AdamW), by generated code (elementwise operators), by its kernel for any device through LibTorch, or on the
// host, in the stream's order: its inputs are copied there and its results back.
#pragma once
#include <memory>

#include "runtime/accelerator/accelerator.h"

namespace dtorch::cuda {

class CudaStream;

enum class Way : uint8_t { kNone, kOwn, kGenerated, kLibTorch, kHost };
Way way_of(const OperatorDef& def);

// Before kernels of operators run: what they call of this library (checked_range.cc). Once a process.
void define_checks();

// For AcceleratorLibrary::kernel_of; run in CudaStream::launch. The definition is the program's.
KernelFn kernel_for(const OperatorDef& def);

// Null when it can't be one kernel.
std::unique_ptr<FusedKernel> make_fused_kernel(const FusedProgram& program, CudaStream& stream);
// The same of one elementwise call; null when it has no formula, or an operand has neither the result's size nor one
// element.
std::unique_ptr<FusedKernel> make_call_kernel(const LocalOperator& local, const OperatorDef& def, uint32_t num_scalars,
                                              CudaStream& stream);

// A copy of a host tensor in the stream's order.
NativeTensor to_device(const NativeTensor& value, CudaStream& stream);

// --- the kernels
void rand_kernel(KernelContext& context);
void randn_kernel(KernelContext& context);
void randint_kernel(KernelContext& context);
void dropout_kernel(KernelContext& context);
void adamw_kernel(KernelContext& context);
void elementwise_kernel(KernelContext& context);
// The operator's own kernel, by LibTorch; on the host where that has none for these dtypes.
void libtorch_kernel(KernelContext& context);
void full_kernel(KernelContext& context);
// Of CudaStream::current_call(), whose operator's own kernel is `kernel_on_host`.
void run_on_host(KernelContext& context);
// The same of a call whose kernel looks at contents (KernelLaunch::waits): on the caller's thread, after what the
// stream has. Sets the outputs.
void run_and_wait(const KernelLaunch& launch, CudaStream& stream);
// The program's kernel of an operator that kernel_for() was asked for.
KernelFn host_kernel_of(uint16_t op);

}  // namespace dtorch::cuda
