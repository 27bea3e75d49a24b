// One GPU: its facts, memory, streams. Lives as long as the process, so that tensors may be freed at any time.
#pragma once
#include <vector>

#include "runtime/cuda/compiled_kernels.h"
#include "runtime/cuda/events.h"
#include "runtime/gpu/gpu_devices.h"

namespace dtorch::cuda {

class CudaAccelerator final : public Accelerator {
 public:
  // device: its number in the CUDA runtime, and among the accelerators.
  explicit CudaAccelerator(int device, const std::vector<GpuDevice>& gpus);
  const AcceleratorInfo& info() const override { return info_; }
  AcceleratorMemory memory() const override;
  std::unique_ptr<ThreadScope> enter_thread(int32_t threads_per_device) override;
  std::unique_ptr<DeviceStream> new_stream(StreamKind kind) override;
  NativeTensor allocate_host(const Shape& local_shape, DType dtype) override;

  int device() const { return device_; }
  EventPool& events() { return events_; }
  CompiledKernels& kernels() { return kernels_; }
  // Lets this GPU read and write the other's memory where the machine can; once. The current device is this one then.
  void reach(int other);

 private:
  const int device_;
  AcceleratorInfo info_;
  std::vector<int32_t> cores_;  // near it
  EventPool events_;
  CompiledKernels kernels_;
  std::mutex mutex_;
  std::vector<bool> reached_;  // by device; under mutex_
};

}  // namespace dtorch::cuda
