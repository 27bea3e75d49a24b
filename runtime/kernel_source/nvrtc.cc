#include "runtime/kernel_source/nvrtc.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <vector>

#include "runtime/base/error.h"

namespace dtorch::kernel_source {
namespace {

constexpr std::array kOptions = {"--std=c++17", "--fmad=false", "--device-as-default-execution-space"};

std::vector<std::string> names() {
  // By the linker's own search first: what LibTorch has loaded is found so.
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable)) folders.push_back(std::string(home) + "/lib64");
  }
  std::istringstream built(DTORCH_NVRTC_FOLDERS);
  for (std::string folder; std::getline(built, folder, ':');) folders.push_back(folder);
  for (const std::string& folder : folders) {
    for (const char* name : {"/libnvrtc.so.13", "/libnvrtc.so.12"}) names.push_back(folder + name);
  }
  return names;
}

}  // namespace

// The process's, made once.
struct FoundNvrtc {
  std::unique_ptr<const Nvrtc> nvrtc;
  std::string problem;
  static const FoundNvrtc& get() {
    static const FoundNvrtc found;
    return found;
  }

 private:
  FoundNvrtc() {
    SharedLibrary library(names());
    if (!library) {
      problem = fmt::format("NVRTC (libnvrtc.so.13 or .12) isn't found: {}; looked for by name and in {}",
                            library.error(), DTORCH_NVRTC_FOLDERS);
      return;
    }
    try {
      nvrtc.reset(new Nvrtc(std::move(library)));
    } catch (const RuntimeFault& fault) {
      problem = fault.what();
    }
  }
};

const Nvrtc& Nvrtc::get() {
  const FoundNvrtc& found = FoundNvrtc::get();
  if (!found.nvrtc) throw RuntimeFault(found.problem);
  return *found.nvrtc;
}

std::string Nvrtc::problem() { return FoundNvrtc::get().problem; }

template <class F>
F Nvrtc::need(const SharedLibrary& library, const char* name) {
  const auto function = library.function<F>(name);
  if (function == nullptr) throw RuntimeFault(std::string("NVRTC has no ") + name + ": an unknown version");
  return function;
}

Nvrtc::Nvrtc(SharedLibrary library) : library_(std::move(library)) {
  const auto take = [&]<class F>(F& function, const char* name) { function = need<F>(library_, name); };
  take(error_string_, "nvrtcGetErrorString");
  take(version_of_, "nvrtcVersion");
  take(create_, "nvrtcCreateProgram");
  take(destroy_, "nvrtcDestroyProgram");
  take(compile_, "nvrtcCompileProgram");
  take(log_size_, "nvrtcGetProgramLogSize");
  take(log_, "nvrtcGetProgramLog");
  take(ptx_size_, "nvrtcGetPTXSize");
  take(ptx_, "nvrtcGetPTX");
  take(binary_size_, "nvrtcGetCUBINSize");
  take(binary_, "nvrtcGetCUBIN");
  int major = 0, minor = 0;
  check(version_of_(&major, &minor), "nvrtcVersion");
  version_ = fmt::format("{}.{}", major, minor);
}

void Nvrtc::check(int code, const char* what) const {
  if (code != 0) throw RuntimeFault(fmt::format("{}: {}", what, error_string_(code)));
}

std::string Nvrtc::key() const { return fmt::format("NVRTC {} {}", version_, fmt::join(kOptions, " ")); }

std::string Nvrtc::compile(const std::string& source, const std::string& arch, bool binary) const {
  Program made = nullptr;
  check(create_(&made, source.c_str(), "dtorch_kernel.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const auto destroy = [this](Program program) { static_cast<void>(destroy_(&program)); };
  const std::unique_ptr<void, decltype(destroy)> program(made, destroy);
  const std::string architecture = "--gpu-architecture=" + arch;
  std::vector<const char*> options(kOptions.begin(), kOptions.end());
  options.push_back(architecture.c_str());
  const int code = compile_(made, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  if (code != 0) {
    check(log_size_(made, &size), "nvrtcGetProgramLogSize");
    std::string log(size, '\0');
    check(log_(made, log.data()), "nvrtcGetProgramLog");
    throw RuntimeFault(fmt::format("a kernel doesn't compile for {}: {}\n{}", arch, error_string_(code), log.c_str()));
  }
  check(binary ? binary_size_(made, &size) : ptx_size_(made, &size), "size of a compiled kernel");
  std::string result(size, '\0');
  check(binary ? binary_(made, result.data()) : ptx_(made, result.data()), "code of a compiled kernel");
  if (!binary && !result.empty()) result.pop_back();  // the end of a C string
  return result;
}

}  // namespace dtorch::kernel_source
