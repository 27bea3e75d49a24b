// What CudaStream captures, as CUDA graphs. Memory that is allocated meanwhile, by LibTorch's kernels too, comes from a
// pool of LibTorch's caching allocator that all graphs of a stream share and that lives as long as the stream and they.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include "runtime/accelerator/accelerator.h"

namespace dtorch::cuda {

class CudaStream;

// A share in a pool of the caching allocator. From its construction to stop() what is allocated on the stream is of the
// pool.
class GraphPool {
 public:
  GraphPool(int device, cudaStream_t stream, c10::MempoolId_t id);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;
  c10::MempoolId_t id() const { return id_; }
  void stop();

 private:
  const c10::DeviceIndex device_;
  const c10::MempoolId_t id_;
  bool is_open_ = true;
};

// A capture under way on a stream. By one thread.
class CudaCapture {
 public:
  CudaCapture(CudaStream& stream, c10::MempoolId_t pool);
  ~CudaCapture();  // ends it
  CudaCapture(const CudaCapture&) = delete;
  CudaCapture& operator=(const CudaCapture&) = delete;
  // Something was asked of the stream that a capture can't hold.
  void refuse(const std::string& what) { refused_ = what; }
  // Ends it. Throws RuntimeFault where it isn't whole.
  std::unique_ptr<DeviceGraph> finish();

 private:
  cudaError_t end(cudaGraph_t* graph);
  CudaStream& stream_;
  std::unique_ptr<GraphPool> pool_;
  std::string refused_;
  bool is_open_ = false;
};

}  // namespace dtorch::cuda
