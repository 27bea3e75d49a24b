#include "runtime/cuda/compiled_kernels.h"

#include <algorithm>

#include "runtime/cuda/check.h"
#include "runtime/cuda/driver_api.h"
#include "runtime/kernel_source/nvrtc.h"

namespace dtorch::cuda {
namespace {

constexpr int64_t kBlock = 256;  // threads; __launch_bounds__ in the prelude
constexpr int64_t kBlocksPerProcessor = 8;

// One for all GPUs of the process.
kernel_source::KernelCache& cache() {
  static kernel_source::KernelCache kernels(kernel_source::KernelCache::default_folder());
  return kernels;
}

}  // namespace

CompiledKernels::CompiledKernels(int device, int capability) : capability_(capability) {
  int processors = 1;
  DTORCH_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  max_blocks_ = processors * kBlocksPerProcessor;
}

CUfunction CompiledKernels::find(const std::string& id, const std::string& name,
                                 const std::function<std::string()>& source) {
  const DriverApi& driver = DriverApi::get();
  const std::string key = id + '\n' + name;
  std::lock_guard lock(mutex_);
  const auto found = functions_.find(key);
  if (found != functions_.end()) return found->second;
  CUmodule& module = modules_[id];
  if (module == nullptr) {
    const kernel_source::Nvrtc& nvrtc = kernel_source::Nvrtc::get();
    const std::string arch = "sm_" + std::to_string(capability_), text = source();
    const auto code = cache().find_or_compile(nvrtc.key() + '\n' + arch + '\n' + text,
                                              [&] { return nvrtc.compile(text, arch, true); });
    DTORCH_CUDA(driver.load_module(&module, code->data()));
  }
  CUfunction function = nullptr;
  DTORCH_CUDA(driver.get_function(&function, module, name.c_str()));
  functions_.emplace(key, function);
  return function;
}

void CompiledKernels::launch(CUfunction kernel, cudaStream_t stream, int64_t num_threads,
                             const std::vector<void*>& arguments, unsigned rows) const {
  if (num_threads <= 0) return;
  const int64_t blocks = std::min((num_threads + kBlock - 1) / kBlock, max_blocks_);
  DTORCH_CUDA(DriverApi::get().launch(kernel, static_cast<unsigned>(blocks), rows, 1, kBlock, 1, 1, 0, stream,
                                      const_cast<void**>(arguments.data()), nullptr));
}

kernel_source::KernelCache::Counts CompiledKernels::counts() const { return cache().counts(); }

}  // namespace dtorch::cuda
