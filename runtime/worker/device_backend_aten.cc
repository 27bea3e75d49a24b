// The CPU through LibTorch.
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <cstdlib>

#include "dtorch/kernel.h"
#include "runtime/worker/device_backend.h"

// MKL's mkl_cbwr_set() under the name that LibTorch gives out, where its matrix products are MKL's.
extern "C" __attribute__((weak)) int mkl_serv_cbwr_set(int mode);

namespace dtorch {
namespace {

// MKL rounds a product by where its operands begin in memory, which depends on what the allocator had at hand and on
// whose memory a call could take over. With any of its modes for reproducible results it doesn't; this one is the
// processor's best. The user's own choice wins. Without effect after MKL's first call in the process.
void make_products_reproducible() {
  constexpr int kBestOfProcessor = 2;  // MKL_CBWR_AUTO
  if (mkl_serv_cbwr_set != nullptr && std::getenv("MKL_CBWR") == nullptr) mkl_serv_cbwr_set(kBestOfProcessor);
}

class AtenThreadScope final : public DeviceBackend::ThreadScope {
 public:
  ~AtenThreadScope() override { set_memory_counter(nullptr); }

 private:
  c10::InferenceMode inference_;
};

class AtenCpuBackend final : public DeviceBackend {
 public:
  AtenCpuBackend() {
    make_products_reproducible();
    count_allocations();
  }
  std::unique_ptr<ThreadScope> enter_thread(int32_t threads_per_device, MemoryCounter* memory) override {
    set_memory_counter(memory);
    at::set_num_threads(threads_per_device);  // of kernels that this thread starts
    return std::make_unique<AtenThreadScope>();
  }
  NativeTensor allocate(const Shape& local_shape, DType dtype) override {
    return NativeTensor::empty(local_shape, dtype);
  }
  KernelFn kernel_of(const OperatorDef& def) override { return def.kernel; }
  std::unique_ptr<PreparedKernel> prepare(const OperatorDef& def, const LocalOperator& local) override {
    return def.prepare ? def.prepare(local) : nullptr;
  }
  std::string error_text(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& e) {
      std::string text = e.what_without_backtrace();
      return text.substr(0, text.find('\n'));
    } catch (...) {
      return standard_error_text(std::current_exception());
    }
  }
};

}  // namespace

std::unique_ptr<DeviceBackend> make_cpu_backend() { return std::make_unique<AtenCpuBackend>(); }

}  // namespace dtorch
