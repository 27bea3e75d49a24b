// The one function that libdtorch_cuda.so shows, and the AcceleratorLibrary behind it.
#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <deque>

#include "dtorch/kernel.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cuda_accelerator.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/nccl_communicator.h"
#include "runtime/gpu/cuda_library.h"

namespace dtorch::cuda {
namespace {

class CudaLibrary final : public AcceleratorLibrary {
 public:
  CudaLibrary() {
    int count = 0;
    DTORCH_CUDA(cudaGetDeviceCount(&count));
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);     // its allocators, too
    const std::vector<GpuDevice> gpus = list_visible_gpus().gpus;  // none: links aren't known
    define_checks();
    for (int device = 0; device < count; ++device) accelerators_.emplace_back(device, gpus);
  }
  std::string name() const override { return "cuda"; }
  int32_t num_accelerators() const override { return static_cast<int32_t>(accelerators_.size()); }
  Accelerator& accelerator(int32_t index) override { return accelerators_.at(static_cast<size_t>(index)); }
  KernelFn kernel_of(const OperatorDef& def) override { return kernel_for(def); }
  std::string error_text(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& e) {
      const std::string text = e.what_without_backtrace();
      return text.substr(0, text.find('\n'));
    } catch (const std::exception& e) {
      return e.what();
    } catch (...) {
      return "an exception of an unknown type";
    }
  }
  CommunicatorFactory* communicators() override { return nccl_.problem().empty() ? &nccl_ : nullptr; }

 private:
  std::deque<CudaAccelerator> accelerators_;
  NcclFactory nccl_;
};

AcceleratorLibrary& accelerators() {
  // Never destroyed: tensors and streams may outlive main.
  static auto* library = new CudaLibrary;
  return *library;
}

const CudaLibraryEntry kEntry = {DTORCH_VERSION, DTORCH_TORCH_VERSION, CUDART_VERSION, &accelerators};

}  // namespace
}  // namespace dtorch::cuda

extern "C" __attribute__((visibility("default"))) const dtorch::CudaLibraryEntry* dtorch_cuda_entry() {
  return &dtorch::cuda::kEntry;
}
