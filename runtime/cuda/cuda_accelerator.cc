#include "runtime/cuda/cuda_accelerator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "dtorch/kernel.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cuda_stream.h"

namespace dtorch::cuda {
namespace {

int capability_of(int device) {
  int major = 0, minor = 0;
  DTORCH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  DTORCH_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major * 10 + minor;
}

class CudaThreadScope final : public Accelerator::ThreadScope {
 public:
  CudaThreadScope(int device, int32_t threads, const std::vector<int32_t>& cores) : near_(cores) {
    CudaStream::forget_used();
    DTORCH_CUDA(cudaSetDevice(device));
    at::set_num_threads(threads);  // of kernels that run on the host
  }

 private:
  const NearGpu near_;
  const c10::InferenceMode inference_;
};

}  // namespace

CudaAccelerator::CudaAccelerator(int device, const std::vector<GpuDevice>& gpus)
    : device_(device), events_(device), kernels_(device, capability_of(device)) {
  int num_devices = 0;
  DTORCH_CUDA(cudaGetDeviceCount(&num_devices));
  reached_.resize(static_cast<size_t>(num_devices));
  cudaDeviceProp properties = {};
  DTORCH_CUDA(cudaGetDeviceProperties(&properties, device));
  std::array<char, 32> bus_id = {};
  DTORCH_CUDA(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), device));
  info_.index = device;
  info_.name = properties.name;
  info_.bus_id = sysfs_bus_id(bus_id.data());
  info_.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info_.capability = std::to_string(properties.major) + "." + std::to_string(properties.minor);
  info_.numa_node = numa_node_of("/sys", info_.bus_id);
  cores_ = cores_near("/sys", info_.bus_id);
  // NVML orders GPUs by their place on the bus, CUDA may order them by speed.
  const auto of_this = [&](const GpuDevice& gpu) { return gpu.bus_id == info_.bus_id; };
  const auto own = std::ranges::find_if(gpus, of_this);
  for (int other = 0; other < num_devices; ++other) {
    if (other == device) continue;
    int can = 0;
    DTORCH_CUDA(cudaDeviceCanAccessPeer(&can, device, other));
    DTORCH_CUDA(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), other));
    AcceleratorInfo::Link link{.to = other, .kind = "not known", .has_peer_access = can != 0};
    for (size_t k = 0; own != gpus.end() && k < own->links.size(); ++k) {
      if (gpus[own->links[k].to].bus_id == sysfs_bus_id(bus_id.data())) link.kind = own->links[k].kind;
    }
    info_.links.push_back(std::move(link));
  }
}

AcceleratorMemory CudaAccelerator::memory() const {
  AcceleratorMemory memory;
  size_t free = 0, total = 0;
  int before = 0;
  DTORCH_CUDA(cudaGetDevice(&before));
  DTORCH_CUDA(cudaSetDevice(device_));
  const cudaError_t code = cudaMemGetInfo(&free, &total);
  DTORCH_CUDA(cudaSetDevice(before));
  check(code, "cudaMemGetInfo");
  memory.free_bytes = static_cast<int64_t>(free);
  memory.total_bytes = static_cast<int64_t>(total);
  using c10::CachingAllocator::StatType;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device_));
  const auto all = static_cast<size_t>(StatType::AGGREGATE);
  memory.allocated_bytes = stats.allocated_bytes[all].current;
  memory.reserved_bytes = stats.reserved_bytes[all].current;
  for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot({0, 0}, false).segments) {
    if (segment.device != device_) continue;
    for (const auto& block : segment.blocks) {
      if (!block.active)
        memory.largest_free_bytes = std::max(memory.largest_free_bytes, static_cast<int64_t>(block.size));
    }
  }
  return memory;
}

std::unique_ptr<Accelerator::ThreadScope> CudaAccelerator::enter_thread(int32_t threads_per_device) {
  return std::make_unique<CudaThreadScope>(device_, threads_per_device, cores_);
}

std::unique_ptr<DeviceStream> CudaAccelerator::new_stream(StreamKind kind) {
  return std::make_unique<CudaStream>(*this, kind);
}

NativeTensor CudaAccelerator::allocate_host(const Shape& local_shape, DType dtype) {
  return NativeTensor::adopt(
      at::detail::empty_cpu(sizes_of(local_shape), scalar_type(dtype), /*pin_memory=*/true).unsafeReleaseTensorImpl());
}

void CudaAccelerator::reach(int other) {
  std::lock_guard lock(mutex_);
  if (other == device_ || reached_.at(static_cast<size_t>(other))) return;
  reached_[static_cast<size_t>(other)] = true;
  int can = 0;
  DTORCH_CUDA(cudaDeviceCanAccessPeer(&can, device_, other));
  if (can == 0) return;  // copies go through the host then
  const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
  if (code == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
    return;
  }
  check(code, "cudaDeviceEnablePeerAccess");
}

}  // namespace dtorch::cuda
