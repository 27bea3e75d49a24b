// A CUDA stream as a DeviceStream. Memory comes from LibTorch's caching allocator, in this stream's order.
#pragma once
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <map>
#include <unordered_map>

#include "runtime/cuda/check.h"
#include "runtime/cuda/cuda_accelerator.h"
#include "runtime/cuda/cuda_graph.h"
#include "runtime/cuda/errands.h"

namespace dtorch::cuda {

class CudaStream final : public DeviceStream {
 public:
  CudaStream(CudaAccelerator& accelerator, StreamKind kind);
  ~CudaStream() override;

  DeviceEventPtr record() override;
  void wait(const DeviceEventPtr& event) override;
  void call_on_host(std::function<void()> errand) override;
  void synchronize() override;
  NativeTensor allocate(const Shape& local_shape, DType dtype, MemoryCounter* memory) override;
  void share(const NativeTensor& value) override;
  void keep(std::vector<NativeTensor> values) override;
  void copy(const NativeTensor& from, const NativeTensor& to) override;
  void set_zero(const NativeTensor& value) override;
  void fold(std::span<const NativeTensor> parts, ReduceOp reduce, int64_t divisor, const NativeTensor& result) override;
  void launch(const KernelLaunch& call) override;
  std::unique_ptr<FusedKernel> fuse(const FusedProgram& program) override;
  // cuda_graph.cc
  void begin_capture() override;
  std::unique_ptr<DeviceGraph> end_capture() override;
  NativeTensor unowned(const NativeTensor& value) override;
  void mark(const StreamMark& mark) override;
  StreamMark marked() const override;
  void set_failure_handler(FailureHandler handler) override;

  // --- for kernels of this library
  // Makes this stream the thread's current one, here and for LibTorch.
  void use() const;
  // Of a thread whose current device something else has set.
  static void forget_used();
  // The stream whose launch() the thread is in, and the call.
  static CudaStream& current();
  static const KernelLaunch& current_call();
  CudaAccelerator& accelerator() { return accelerator_; }
  cudaStream_t get() const { return stream_.stream(); }
  const StreamMark& marking() const { return marking_; }  // of what is enqueued now
  // Runs generated kernels of `source`, named `name`; see CompiledKernels.
  void run_compiled(const std::string& id, const std::string& name, const std::function<std::string()>& source,
                    int64_t num_threads, const std::vector<void*>& arguments, unsigned rows = 1);
  // Of this stream's work. A GPU's own failure breaks its context: everything after it fails the same way, so that the
  // first is told and no other.
  void tell_failure(const StreamMark& mark, const std::string& what);
  // The one-call program of an elementwise operator; null when it has no formula.
  FusedKernel* kernel_of_call(const LocalOperator& local, const OperatorDef& def, uint32_t num_scalars);

 private:
  void fold_some(std::span<const std::byte* const> parts, DType dtype, ReduceOp reduce, bool is_first, bool is_last,
                 int64_t divisor, const NativeTensor& result);
  // Throws RuntimeFault during a capture, and makes it void.
  void require_no_capture(const char* what) const;
  void tell_failure(cudaError_t code) { tell_failure(marked(), text_of(code)); }

  CudaAccelerator& accelerator_;
  const uint64_t number_;  // of the process's streams
  const StreamKind kind_;
  const c10::cuda::CUDAStream stream_;
  // Where the GPU writes how far it is.
  NativeTensor mark_memory_;
  StreamMark marking_;
  uint64_t sequence_marked_ = 0;
  int64_t marks_since_ = 0;
  std::mutex failure_mutex_;
  FailureHandler on_failure_;                                                   // under failure_mutex_
  bool has_failed_ = false;                                                     // under failure_mutex_
  std::vector<NativeTensor> kept_;                                              // until the next errand
  std::unordered_map<std::string, std::unique_ptr<FusedKernel>> call_kernels_;  // by what decides the code
  std::unique_ptr<GraphPool> graph_pool_;                                       // of what is captured
  std::unique_ptr<CudaCapture> capture_;                                        // under way
  Errands errands_;
};

// CUDA streams that nobody uses: they aren't destroyed, since memory that was used on one may be freed later.
cudaStream_t take_stream(int device, StreamKind kind);
void give_back_stream(int device, StreamKind kind, cudaStream_t stream);

}  // namespace dtorch::cuda
