// Generated kernels compiled by the host's compiler, so that what they compute can be looked at where no GPU is: the
// same text, run by one thread that plays all threads of a grid.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dtorch::test {

class HostKernels {
 public:
  // Compiles `text` with prelude() before it; `names`: of its kernels that are to be called. Throws std::runtime_error
  // with the compiler's words.
  HostKernels(const std::string& text, const std::vector<std::string>& names);
  ~HostKernels();
  HostKernels(const HostKernels&) = delete;
  HostKernels& operator=(const HostKernels&) = delete;

  // arguments: addresses of the parameters, as cuLaunchKernel has them. Rows of so many threads.
  void run(const std::string& name, const std::vector<void*>& arguments, int64_t threads, int64_t rows = 1) const;

 private:
  void* symbol(const std::string& name) const;
  void* handle_ = nullptr;
};

}  // namespace dtorch::test
