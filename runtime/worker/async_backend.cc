#include "runtime/worker/async_backend.h"

#include <charconv>

#include "runtime/accelerator/fake/fake_library.h"
#include "runtime/base/log.h"
#include "runtime/gpu/cuda_library.h"
#include "runtime/worker/device_queue.h"

namespace dtorch {
namespace {

class AsyncBackend final : public DeviceBackend {
 public:
  explicit AsyncBackend(std::shared_ptr<AcceleratorLibrary> library)
      : library_(std::move(library)), cpu_(make_cpu_backend()) {}

  // Kernels that look at contents run on the caller's thread, as feeds do. What they make is memory of the host, and
  // not charged to the device, whose streams charge what is its own.
  std::unique_ptr<ThreadScope> enter_thread(int32_t threads_per_device, MemoryCounter*) override {
    return cpu_->enter_thread(threads_per_device, nullptr);
  }
  NativeTensor allocate(const Shape& local_shape, DType dtype) override { return cpu_->allocate(local_shape, dtype); }
  KernelFn kernel_of(const OperatorDef& def) override { return library_->kernel_of(def); }
  std::unique_ptr<PreparedKernel> prepare(const OperatorDef&, const LocalOperator&) override { return nullptr; }
  std::unique_ptr<FusedKernel> fuse(const FusedProgram&) override { return nullptr; }
  std::string error_text(const std::exception_ptr& error) override { return library_->error_text(error); }
  AcceleratorLibrary* library() override { return library_.get(); }
  std::shared_ptr<DeviceQueue> open_queue(size_t slot, size_t num_streams, MemoryCounter* memory) override {
    return std::make_shared<DeviceQueue>(library_, slot, num_streams, memory);
  }

 private:
  const std::shared_ptr<AcceleratorLibrary> library_;
  const std::unique_ptr<DeviceBackend> cpu_;
};

constexpr std::string_view kFake = "fake";

// "fake:N:SEED" after the name.
fake::Setup fake_setup(std::string_view device) {
  fake::Setup setup;
  const auto take = [&](auto& number) {
    if (device.empty()) return;
    device.remove_prefix(1);
    const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), number);
    if (error != std::errc() || number < 0 || (end != device.data() + device.size() && *end != ':'))
      throw UserError("--device fake:N:SEED: N and SEED are whole numbers");
    device.remove_prefix(static_cast<size_t>(end - device.data()));
  };
  int64_t accelerators = 0, seed = 1;
  take(accelerators);
  take(seed);
  if (accelerators > 0) setup.accelerators = static_cast<int32_t>(accelerators);
  setup.seed = static_cast<uint64_t>(seed);
  // The driver's thread never ends, so neither does what it has entered with.
  const auto cpu = std::shared_ptr<DeviceBackend>(make_cpu_backend());
  setup.enter_thread = [cpu]() -> std::shared_ptr<void> { return cpu->enter_thread(1, nullptr); };
  setup.kernel_of = [cpu](const OperatorDef& def) { return cpu->kernel_of(def); };
  setup.error_text = [cpu](const std::exception_ptr& error) { return cpu->error_text(error); };
  return setup;
}

}  // namespace

std::unique_ptr<DeviceBackend> make_async_backend(std::shared_ptr<AcceleratorLibrary> library) {
  return std::make_unique<AsyncBackend>(std::move(library));
}

std::unique_ptr<DeviceBackend> make_backend(const std::string& device, bool is_only_process) {
  if (device == kFake || device.starts_with("fake:")) {
    fake::Setup setup = fake_setup(std::string_view(device).substr(kFake.size()));
    setup.has_communicators = is_only_process;
    return make_async_backend(fake::make_library(setup));
  }
  if (device == "cuda") {
    // The library stays loaded until the process ends.
    return make_async_backend(std::shared_ptr<AcceleratorLibrary>(&load_cuda_library(), [](AcceleratorLibrary*) {}));
  }
  return make_cpu_backend();
}

void check_device(const std::string& device, bool has_nodes) {
  if (device == "cuda" && has_nodes) load_cuda_library();
  if (device.starts_with("fake:")) fake_setup(std::string_view(device).substr(kFake.size()));
}

int32_t num_accelerators(const std::string& device) {
  if (device.starts_with("fake:")) {
    const int32_t said = fake_setup(std::string_view(device).substr(kFake.size())).accelerators;
    return said == fake::Setup().accelerators ? 0 : said;  // one for each device
  }
  if (device != "cuda") return 0;
  try {
    return load_cuda_library().num_accelerators();
  } catch (const std::exception& error) {
    log_debug("{}", error.what());  // make_backend() says it to the job
    return 0;
  }
}

}  // namespace dtorch
