#include "runtime/accelerator/fake/fake_library.h"

#include <map>
#include <mutex>

#include "runtime/accelerator/fake/fake_communicator.h"
#include "runtime/accelerator/fake/fake_stream.h"

namespace dtorch::fake {
namespace {

class FakeAccelerator final : public Accelerator {
 public:
  FakeAccelerator(Driver& driver, int32_t index) : driver_(driver) {
    info_.index = index;
    info_.name = "fake accelerator";
  }
  const AcceleratorInfo& info() const override { return info_; }
  AcceleratorMemory memory() const override { return {}; }
  std::unique_ptr<ThreadScope> enter_thread(int32_t) override { return std::make_unique<ThreadScope>(); }
  std::unique_ptr<DeviceStream> new_stream(StreamKind kind) override { return std::make_unique<Stream>(driver_, kind); }
  NativeTensor allocate_host(const Shape& local_shape, DType dtype) override {
    require_no_capture("an allocation of host memory");
    return NativeTensor::empty(local_shape, dtype);
  }

 private:
  Driver& driver_;
  AcceleratorInfo info_;
};

class Library final : public AcceleratorLibrary {
 public:
  explicit Library(Driver& driver) : driver_(driver), communicators_(driver) {}
  std::string name() const override { return "fake"; }
  int32_t num_accelerators() const override { return driver_.setup()->accelerators; }
  Accelerator& accelerator(int32_t index) override {
    DTORCH_CHECK(index >= 0 && index < num_accelerators(), "there is no fake accelerator " + std::to_string(index));
    std::lock_guard lock(mutex_);
    std::unique_ptr<FakeAccelerator>& made = accelerators_[index];
    if (!made) made = std::make_unique<FakeAccelerator>(driver_, index);
    return *made;
  }
  KernelFn kernel_of(const OperatorDef& def) override { return driver_.setup()->kernel_of(def); }
  std::string error_text(const std::exception_ptr& error) override { return driver_.setup()->error_text(error); }
  CommunicatorFactory* communicators() override {
    return driver_.setup()->has_communicators ? &communicators_ : nullptr;
  }

 private:
  Driver& driver_;
  Communicators communicators_;
  std::mutex mutex_;
  std::map<int32_t, std::unique_ptr<FakeAccelerator>> accelerators_;  // under mutex_
};

}  // namespace

std::shared_ptr<AcceleratorLibrary> make_library(const Setup& setup) {
  return std::make_shared<Library>(Driver::of_process(setup));
}

}  // namespace dtorch::fake
