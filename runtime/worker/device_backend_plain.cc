// The CPU without LibTorch.
#include "runtime/worker/device_backend.h"
#include "runtime/worker/plain_kernels.h"

namespace dtorch {
namespace {

class PlainThreadScope final : public DeviceBackend::ThreadScope {
 public:
  ~PlainThreadScope() override { set_memory_counter(nullptr); }
};

class PlainCpuBackend final : public DeviceBackend {
 public:
  std::unique_ptr<ThreadScope> enter_thread(int32_t, MemoryCounter* memory) override {
    set_memory_counter(memory);
    return std::make_unique<PlainThreadScope>();
  }
  NativeTensor allocate(const Shape& local_shape, DType dtype) override {
    return NativeTensor::empty(local_shape, dtype);
  }
  KernelFn kernel_of(const OperatorDef& def) override { return def.kernel ? def.kernel : plain_kernel(def.name); }
  std::unique_ptr<PreparedKernel> prepare(const OperatorDef& def, const LocalOperator& local) override {
    return def.prepare ? def.prepare(local) : nullptr;
  }
  std::string error_text(const std::exception_ptr& error) override { return standard_error_text(error); }
};

}  // namespace

std::unique_ptr<DeviceBackend> make_cpu_backend() { return std::make_unique<PlainCpuBackend>(); }

}  // namespace dtorch
