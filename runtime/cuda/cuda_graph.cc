#include "runtime/cuda/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>

#include <utility>

#include "dtorch/kernel.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch::cuda {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(CudaStream& stream, cudaGraphExec_t graph, std::unique_ptr<GraphPool> pool)
      : stream_(stream), graph_(graph), pool_(std::move(pool)) {}
  // One that is in flight is freed when it has run, and the pool's memory is given back in the stream's order.
  ~CudaGraph() override { static_cast<void>(cudaGraphExecDestroy(graph_)); }
  void launch() override {
    stream_.use();
    DTORCH_CUDA(cudaGraphLaunch(graph_, stream_.get()));
  }

 private:
  CudaStream& stream_;
  const cudaGraphExec_t graph_;
  const std::unique_ptr<GraphPool> pool_;
};

}  // namespace

GraphPool::GraphPool(int device, cudaStream_t stream, c10::MempoolId_t id)
    : device_(static_cast<c10::DeviceIndex>(device)), id_(id) {
  c10::cuda::CUDACachingAllocator::beginAllocateToPool(device_, id_,
                                                       [stream](cudaStream_t other) { return other == stream; });
}

GraphPool::~GraphPool() {
  try {
    stop();
    c10::cuda::CUDACachingAllocator::releasePool(device_, id_);
  } catch (const c10::Error&) {
    static_cast<void>(cudaGetLastError());  // its memory stays reserved
  }
}

void GraphPool::stop() {
  if (!std::exchange(is_open_, false)) return;
  c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, id_);
}

CudaCapture::CudaCapture(CudaStream& stream, c10::MempoolId_t pool)
    : stream_(stream), pool_(std::make_unique<GraphPool>(stream.accelerator().device(), stream.get(), pool)) {
  // What other threads do meanwhile is their own affair.
  DTORCH_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  is_open_ = true;
}

CudaCapture::~CudaCapture() {
  cudaGraph_t graph = nullptr;
  static_cast<void>(end(&graph));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
}

cudaError_t CudaCapture::end(cudaGraph_t* graph) {
  if (!std::exchange(is_open_, false)) return cudaSuccess;
  const cudaError_t code = cudaStreamEndCapture(stream_.get(), graph);
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return code;
}

std::unique_ptr<DeviceGraph> CudaCapture::finish() {
  cudaGraph_t graph = nullptr;
  const cudaError_t code = end(&graph);
  pool_->stop();
  cudaGraphExec_t executable = nullptr;
  cudaError_t made = cudaSuccess;
  if (code == cudaSuccess && refused_.empty()) made = cudaGraphInstantiateWithFlags(&executable, graph, 0);
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  if (!refused_.empty()) throw RuntimeFault("a capture can't hold " + refused_);
  check(code, "cudaStreamEndCapture");
  check(made, "cudaGraphInstantiateWithFlags");
  return std::make_unique<CudaGraph>(stream_, executable, std::move(pool_));
}

void CudaStream::begin_capture() {
  require_no_capture("another capture");
  use();
  // The stream has a share of its own: a pool that nobody has a share of can't be used again.
  if (!graph_pool_) {
    graph_pool_ = std::make_unique<GraphPool>(accelerator_.device(), get(), at::cuda::graph_pool_handle());
    graph_pool_->stop();
  }
  capture_ = std::make_unique<CudaCapture>(*this, graph_pool_->id());
}

std::unique_ptr<DeviceGraph> CudaStream::end_capture() {
  DTORCH_CHECK(capture_ != nullptr, "the end of a capture that wasn't begun");
  use();
  const std::unique_ptr<CudaCapture> capture = std::move(capture_);
  return capture->finish();
}

void CudaStream::require_no_capture(const char* what) const {
  if (capture_ == nullptr) return;
  capture_->refuse(what);
  throw RuntimeFault(std::string("a capture can't hold ") + what);
}

NativeTensor CudaStream::unowned(const NativeTensor& value) {
  const at::Tensor& tensor = as_aten(value);
  const c10::Storage& storage = tensor.storage();
  c10::Storage same(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    c10::DataPtr(storage.mutable_data(), storage.device()), nullptr, false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(same), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                   tensor.dtype());
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return NativeTensor::adopt(impl.release());
}

}  // namespace dtorch::cuda
