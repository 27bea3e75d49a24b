// DeviceBackend: what the worker needs of a kind of device. One object serves all streams of a node.
#pragma once
#include <exception>
#include <memory>
#include <string>

#include "ops/def/operator_def.h"
#include "ops/def/prepared_kernel.h"
#include "runtime/worker/fused_kernel.h"
#include "runtime/worker/native/native_memory.h"

namespace dtorch {

class AcceleratorLibrary;  // runtime/accelerator/accelerator.h
class DeviceQueue;         // device_queue.h

class DeviceBackend {
 public:
  // State of a stream's thread (LibTorch's guards); destroyed on that thread when it ends.
  class ThreadScope {
   public:
    virtual ~ThreadScope() = default;
  };
  virtual ~DeviceBackend() = default;
  // On a stream's thread before its first task. threads_per_device: threads that one kernel may use. Storages that the
  // thread makes are charged to `memory`.
  virtual std::unique_ptr<ThreadScope> enter_thread(int32_t threads_per_device, MemoryCounter* memory) = 0;
  virtual NativeTensor allocate(const Shape& local_shape, DType dtype) = 0;
  // The kernel that runs an operator on this kind of device; null when there is none.
  virtual KernelFn kernel_of(const OperatorDef& def) = 0;
  // The operator's prepared kernel for these operands; null when it has none.
  virtual std::unique_ptr<PreparedKernel> prepare(const OperatorDef& def, const LocalOperator& local) = 0;
  // A run of elementwise operators as one kernel; null when they have to be run one by one. On the device's stream.
  virtual std::unique_ptr<FusedKernel> fuse(const FusedProgram& program) { return make_blocked_kernel(program, *this); }
  // The streams of the device in a slot of the node, whose kernels run behind the host; null: kernels are calls.
  virtual std::shared_ptr<DeviceQueue> open_queue(size_t slot, size_t num_streams, MemoryCounter* memory);
  // Of devices that run behind the host, else null.
  virtual AcceleratorLibrary* library() { return nullptr; }
  // What an exception that left a kernel says, without backtraces.
  virtual std::string error_text(const std::exception_ptr& error) = 0;
};

// LibTorch on the CPU; in builds without kernels, plain memory and the few kernels of plain_kernels.h.
std::unique_ptr<DeviceBackend> make_cpu_backend();

// True when the exception says that memory was short.
bool is_out_of_memory(const std::exception_ptr& error);
// error_text for exceptions that any build knows.
std::string standard_error_text(const std::exception_ptr& error);

}  // namespace dtorch
