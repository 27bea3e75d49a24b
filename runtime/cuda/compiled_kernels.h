// Kernels of generated source on one GPU: compiled when they are met first (NVRTC, kept on disk), loaded, launched.
// Thread-safe.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/kernel_source/kernel_cache.h"

namespace dtorch::cuda {

class CompiledKernels {
 public:
  // Of the GPU with this number, whose context is current wherever find() is called. capability: 90 for 9.0.
  CompiledKernels(int device, int capability);

  // The kernel `name` of the program that `source` gives. id: what stands for the source, in this process. Throws
  // RuntimeFault.
  CUfunction find(const std::string& id, const std::string& name, const std::function<std::string()>& source);

  // Enough threads for `num_threads` (at most; kernels go on by DT_THREADS), in `rows` rows.
  void launch(CUfunction kernel, cudaStream_t stream, int64_t num_threads, const std::vector<void*>& arguments,
              unsigned rows = 1) const;
  kernel_source::KernelCache::Counts counts() const;

 private:
  const int capability_;
  int64_t max_blocks_ = 1;
  std::mutex mutex_;
  std::unordered_map<std::string, CUmodule> modules_;      // by id; under mutex_, as what follows
  std::unordered_map<std::string, CUfunction> functions_;  // by id and name
};

}  // namespace dtorch::cuda
