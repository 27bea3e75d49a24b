// NVRTC, the compiler for device kernels that comes as a library: loaded when it is asked for. Thread-safe.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/gpu/shared_library.h"

namespace dtorch::kernel_source {

class Nvrtc {
 public:
  // Of the process. Throws RuntimeFault that says where it was looked for.
  static const Nvrtc& get();
  // Why get() would throw; "" when it wouldn't.
  static std::string problem();

  // A program for one kind of GPU. arch "compute_90" and not `binary`: PTX; "sm_90" and `binary`: the machine's code.
  // No contraction of products and sums, no fast mathematics: one rounding an operation, as on the CPU. Throws
  // RuntimeFault with the compiler's log.
  std::string compile(const std::string& source, const std::string& arch, bool binary) const;
  const std::string& version() const { return version_; }  // "13.0"
  // What decides the code beside source and kind of GPU.
  std::string key() const;

 private:
  explicit Nvrtc(SharedLibrary library);
  using Program = void*;
  template <class F>
  static F need(const SharedLibrary& library, const char* name);
  void check(int code, const char* what) const;

  const SharedLibrary library_;
  std::string version_;
  const char* (*error_string_)(int) = nullptr;
  int (*version_of_)(int*, int*) = nullptr;
  int (*create_)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy_)(Program*) = nullptr;
  int (*compile_)(Program, int, const char* const*) = nullptr;
  int (*log_size_)(Program, size_t*) = nullptr;
  int (*log_)(Program, char*) = nullptr;
  int (*ptx_size_)(Program, size_t*) = nullptr;
  int (*ptx_)(Program, char*) = nullptr;
  int (*binary_size_)(Program, size_t*) = nullptr;
  int (*binary_)(Program, char*) = nullptr;
  friend struct FoundNvrtc;
};

}  // namespace dtorch::kernel_source
