#include "runtime/cuda/check.h"

#include "runtime/base/error.h"
#include "runtime/cuda/driver_api.h"
#include "runtime/gpu/shared_library.h"

namespace dtorch::cuda {

std::string text_of(cudaError_t code) { return std::string(cudaGetErrorName(code)) + ": " + cudaGetErrorString(code); }

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  const std::string what(call);
  throw RuntimeFault(what.substr(0, what.find('(')) + ": " + text_of(code));
}

void check(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  const DriverApi& driver = DriverApi::get();
  const char *name = "", *text = "";
  static_cast<void>(driver.get_error_name(code, &name));
  static_cast<void>(driver.get_error_string(code, &text));
  const std::string what(call);
  throw RuntimeFault(what.substr(0, what.find('(')) + ": " + name + ": " + text);
}

const DriverApi& DriverApi::get() {
  static const DriverApi api = [] {
    const SharedLibrary driver({"libcuda.so.1"});
    if (!driver) throw RuntimeFault("the NVIDIA driver can't be loaded: " + driver.error());
    DriverApi found;
    const auto take = [&]<class F>(F& function, const char* name) {
      function = driver.function<F>(name);
      if (function == nullptr) throw RuntimeFault(std::string("the NVIDIA driver has no ") + name);
    };
    take(found.get_error_name, "cuGetErrorName");
    take(found.get_error_string, "cuGetErrorString");
    take(found.load_module, "cuModuleLoadData");
    take(found.get_function, "cuModuleGetFunction");
    take(found.launch, "cuLaunchKernel");
    found.write_value = driver.function<decltype(found.write_value)>("cuStreamWriteValue64_v2");
    return found;
  }();
  return api;
}

}  // namespace dtorch::cuda
