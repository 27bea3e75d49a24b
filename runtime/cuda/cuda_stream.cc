#include "runtime/cuda/cuda_stream.h"

#include <ATen/ops/zero.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <future>

#include "dtorch/kernel.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/cuda_memory.h"
#include "runtime/cuda/driver_api.h"
#include "runtime/kernel_source/prelude.h"
#include "runtime/kernel_source/step_source.h"
#include "runtime/worker/native/native_memory.h"

namespace dtorch::cuda {
namespace {

std::atomic<uint64_t> next_number{1};
thread_local uint64_t thread_stream = 0;  // number of the stream that is current
thread_local CudaStream* launching = nullptr;
thread_local const KernelLaunch* launched = nullptr;

// A mark is written by the GPU as one word.
constexpr int kOpBits = 24;
constexpr uint32_t kMaxOp = (1u << kOpBits) - 1;
constexpr int64_t kMarkEvery = 16;  // operators of one sequence
constexpr size_t kMaxKept = 256;

struct Launching {
  Launching(CudaStream* stream, const KernelLaunch* call) {
    launching = stream;
    launched = call;
  }
  ~Launching() {
    launching = nullptr;
    launched = nullptr;
  }
  Launching(const Launching&) = delete;
  Launching& operator=(const Launching&) = delete;
};

struct StreamPool {
  std::mutex mutex;
  std::map<std::pair<int, bool>, std::vector<cudaStream_t>> waiting;  // by device, and whether first in line
};
StreamPool& stream_pool() {
  static auto* pool = new StreamPool;
  return *pool;
}

}  // namespace

cudaStream_t take_stream(int device, StreamKind kind) {
  const bool is_first_in_line = kind != StreamKind::kCompute;
  {
    std::lock_guard lock(stream_pool().mutex);
    std::vector<cudaStream_t>& waiting = stream_pool().waiting[{device, is_first_in_line}];
    if (!waiting.empty()) {
      const cudaStream_t stream = waiting.back();
      waiting.pop_back();
      return stream;
    }
  }
  CudaStream::forget_used();
  DTORCH_CUDA(cudaSetDevice(device));
  int lowest = 0, highest = 0;
  DTORCH_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t stream = nullptr;
  DTORCH_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, is_first_in_line ? highest : lowest));
  return stream;
}

void give_back_stream(int device, StreamKind kind, cudaStream_t stream) {
  std::lock_guard lock(stream_pool().mutex);
  stream_pool().waiting[{device, kind != StreamKind::kCompute}].push_back(stream);
}

CudaStream::CudaStream(CudaAccelerator& accelerator, StreamKind kind)
    : accelerator_(accelerator),
      number_(next_number++),
      kind_(kind),
      stream_(c10::cuda::getStreamFromExternal(take_stream(accelerator.device(), kind),
                                               static_cast<c10::DeviceIndex>(accelerator.device()))),
      mark_memory_(accelerator.allocate_host({1}, kInt64)),
      errands_(accelerator.device(), [this](cudaError_t code) { tell_failure(code); }) {
  *reinterpret_cast<volatile int64_t*>(mark_memory_.data()) = 0;
}

CudaStream::~CudaStream() {
  const cudaError_t code = cudaStreamSynchronize(get());
  if (code != cudaSuccess) tell_failure(code);
  call_kernels_.clear();
  give_back_stream(accelerator_.device(), kind_, get());
}

void CudaStream::use() const {
  if (thread_stream == number_) return;
  DTORCH_CUDA(cudaSetDevice(accelerator_.device()));
  c10::cuda::setCurrentCUDAStream(stream_);
  thread_stream = number_;
}

void CudaStream::forget_used() { thread_stream = 0; }

CudaStream& CudaStream::current() {
  DTORCH_CHECK(launching != nullptr, "a kernel of the CUDA backend outside of a launch");
  return *launching;
}
const KernelLaunch& CudaStream::current_call() {
  DTORCH_CHECK(launched != nullptr, "a kernel of the CUDA backend outside of a launch");
  return *launched;
}

DeviceEventPtr CudaStream::record() {
  require_no_capture("an event");
  use();
  return std::make_shared<const Event>(accelerator_.events(), get());
}

void CudaStream::wait(const DeviceEventPtr& event) {
  const auto* cuda_event = dynamic_cast<const Event*>(event.get());
  DTORCH_CHECK(cuda_event != nullptr, "an event of another kind of device");
  if (cuda_event->stream() == get()) return;
  require_no_capture("a wait for another stream");
  use();
  DTORCH_CUDA(cudaStreamWaitEvent(get(), cuda_event->get(), 0));
}

void CudaStream::call_on_host(std::function<void()> errand) {
  require_no_capture("a call on the host");
  use();
  auto event = std::make_shared<const Event>(accelerator_.events(), get());
  if (kept_.empty()) {
    errands_.add(std::move(event), std::move(errand));
    return;
  }
  errands_.add(std::move(event), [kept = std::move(kept_), errand = std::move(errand)]() mutable {
    kept.clear();
    errand();
  });
  kept_.clear();
}

void CudaStream::synchronize() {
  std::promise<void> done;
  call_on_host([&done] { done.set_value(); });
  done.get_future().wait();
}

NativeTensor CudaStream::allocate(const Shape& local_shape, DType dtype, MemoryCounter* memory) {
  use();
  return new_tensor(local_shape, dtype, accelerator_.device(), memory);
}

void CudaStream::share(const NativeTensor& value) {
  require_no_capture("a value of another stream");
  if (!is_on_host(value)) c10::cuda::CUDACachingAllocator::recordStream(allocation_of(value), stream_);
}

// Held until the next errand at least: one event serves them all.
void CudaStream::keep(std::vector<NativeTensor> values) {
  require_no_capture("handles");
  std::move(values.begin(), values.end(), std::back_inserter(kept_));
  if (kept_.size() >= kMaxKept) call_on_host([] {});
}

void CudaStream::copy(const NativeTensor& from, const NativeTensor& to) {
  use();
  DTORCH_CHECK(from.dtype() == to.dtype() && from.local_shape() == to.local_shape(), from.str() + " onto " + to.str());
  const auto bytes = static_cast<size_t>(from.num_bytes());
  if (bytes == 0) return;
  if (is_on_host(from) || is_on_host(to)) require_no_capture("a copy of host memory");
  for (const NativeTensor* side : {&from, &to}) {
    if (!is_on_host(*side)) accelerator_.reach(device_of(*side));
  }
  if (!from.is_contiguous() || !to.is_contiguous()) {
    as_aten(to).copy_(as_aten(from), /*non_blocking=*/true);
  } else if (!is_on_host(from) && !is_on_host(to) && device_of(from) != device_of(to)) {
    DTORCH_CUDA(cudaMemcpyPeerAsync(to.data(), device_of(to), from.data(), device_of(from), bytes, get()));
  } else {
    DTORCH_CUDA(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDefault, get()));
  }
  for (const NativeTensor* side : {&from, &to}) {
    if (is_on_host(*side)) keep({*side});
  }
}

void CudaStream::set_zero(const NativeTensor& value) {
  use();
  if (!value.is_contiguous()) {
    at::Tensor target = as_aten(value);
    at::zero_(target);
  } else if (value.num_bytes() > 0) {
    DTORCH_CUDA(cudaMemsetAsync(value.data(), 0, static_cast<size_t>(value.num_bytes()), get()));
  }
}

void CudaStream::run_compiled(const std::string& id, const std::string& name,
                              const std::function<std::string()>& source, int64_t num_threads,
                              const std::vector<void*>& arguments, unsigned rows) {
  use();
  CompiledKernels& kernels = accelerator_.kernels();
  kernels.launch(kernels.find(id, name, source), get(), num_threads, arguments, rows);
}

void CudaStream::fold(std::span<const NativeTensor> parts, ReduceOp reduce, int64_t divisor,
                      const NativeTensor& result) {
  constexpr size_t kMost = kernel_source::FoldList::kMaxParts;
  std::vector<const std::byte*> pointers;
  for (const NativeTensor& part : parts) {
    DTORCH_CHECK(part.is_contiguous() && part.dtype() == result.dtype(), "a fold of " + part.str());
    pointers.push_back(part.data());
  }
  DTORCH_CHECK(!pointers.empty() && result.is_contiguous(), "a fold of " + std::to_string(parts.size()) + " parts");
  std::span<const std::byte* const> left = pointers;
  NativeTensor sums;
  for (bool is_first = true; !left.empty(); is_first = false) {
    const size_t count = std::min(left.size(), is_first ? kMost : kMost - 1);
    const bool is_last = count == left.size();
    std::vector<const std::byte*> some;
    if (!is_first) some.push_back(sums.data());
    some.insert(some.end(), left.begin(), left.begin() + static_cast<ptrdiff_t>(count));
    left = left.subspan(count);
    NativeTensor next = is_last ? result : allocate(result.local_shape(), accumulation_dtype(result.dtype()), nullptr);
    fold_some(some, result.dtype(), reduce, is_first, is_last, is_last ? divisor : 1, next);
    sums = std::move(next);
  }
}

void CudaStream::fold_some(std::span<const std::byte* const> parts, DType dtype, ReduceOp reduce, bool is_first,
                           bool is_last, int64_t divisor, const NativeTensor& result) {
  const kernel_source::StepSource source = kernel_source::fold_source(dtype, reduce, {is_first, is_last});
  kernel_source::FoldList list{.num_parts = static_cast<int64_t>(parts.size())};
  std::copy(parts.begin(), parts.end(), list.parts);
  std::byte* to = result.data();
  int64_t count = result.num_elements();
  run_compiled(source.name, source.name, [&] { return kernel_source::prelude() + source.text; }, count,
               {&list, &to, &count, &divisor});
}

void CudaStream::launch(const KernelLaunch& call) {
  use();
  const Launching scope(this, &call);
  if (call.waits) return run_and_wait(call, *this);
  KernelContext context(call.local, call.inputs, call.outputs, call.scalars, call.operands, nullptr);
  try {
    call.kernel(context);
  } catch (const c10::OutOfMemoryError& error) {
    throw OutOfMemory(error.what_without_backtrace());
  }
  for (NativeTensor& output : call.outputs) {
    if (output && is_on_host(output)) output = to_device(output, *this);
    if (output && call.memory != nullptr) charge(output, *call.memory);
  }
}

std::unique_ptr<FusedKernel> CudaStream::fuse(const FusedProgram& program) { return make_fused_kernel(program, *this); }

FusedKernel* CudaStream::kernel_of_call(const LocalOperator& local, const OperatorDef& def, uint32_t num_scalars) {
  // A LocalOperator dies with its Graph, and another may lie where it was. (TensorMetas are for ever.)
  std::string key(reinterpret_cast<const char*>(&local.op), sizeof local.op);
  const auto add = [&](const auto& word) { key.append(reinterpret_cast<const char*>(&word), sizeof word); };
  for (const TensorMeta* input : local.spec->inputs) add(input);
  for (const Box& box : local.input_boxes) add(box.num_elements());
  add(local.output_boxes[0].num_elements());
  add(local.spec->outputs[0]);
  key += local.spec->attributes;
  const auto found = call_kernels_.find(key);
  if (found != call_kernels_.end()) return found->second.get();
  return call_kernels_.emplace(key, make_call_kernel(local, def, num_scalars, *this)).first->second.get();
}

void CudaStream::mark(const StreamMark& mark) {
  marking_ = mark;
  if (capture_ != nullptr) return;  // the same word every time would be wrong
  const bool is_new = mark.sequence != sequence_marked_;
  if (!is_new && ++marks_since_ < kMarkEvery) return;
  sequence_marked_ = mark.sequence;
  marks_since_ = 0;
  const DriverApi& driver = DriverApi::get();
  if (driver.write_value == nullptr) return;
  use();
  const uint64_t word = mark.sequence << kOpBits | std::min(mark.op_index, kMaxOp);
  // (Pinned memory has one address for the host and the GPU.)
  DTORCH_CUDA(driver.write_value(get(), reinterpret_cast<CUdeviceptr>(mark_memory_.data()), word, 0));
}

StreamMark CudaStream::marked() const {
  const auto word = static_cast<uint64_t>(*reinterpret_cast<volatile int64_t*>(mark_memory_.data()));
  return {word >> kOpBits, static_cast<uint32_t>(word & kMaxOp)};
}

void CudaStream::set_failure_handler(FailureHandler handler) {
  std::lock_guard lock(failure_mutex_);
  on_failure_ = std::move(handler);
}

void CudaStream::tell_failure(const StreamMark& mark, const std::string& what) {
  FailureHandler handler;
  {
    std::lock_guard lock(failure_mutex_);
    if (std::exchange(has_failed_, true)) return;
    handler = on_failure_;
  }
  if (handler) handler(mark, what);
}

}  // namespace dtorch::cuda
