// What DTorch needs of devices that run behind the host (GPUs): streams, events, memory, copies, kernels.
// libdtorch_cuda implements it over CUDA and LibTorch, runtime/accelerator/fake over threads. The worker's side is
// runtime/worker/device_queue.h; docs/gpu.md tells how the two hang together.
//
// A value "is there" for the host when the work that makes it is enqueued. Nothing here waits for a device but what
// says so. All objects may be used from any thread, one at a time; streams of one accelerator by several threads at
// once. Destructors of tensors may run on any thread. What fails at once throws RuntimeFault (OutOfMemory where memory
// is short); what fails later is told through DeviceStream::set_failure_handler.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mesh/placement.h"
#include "ops/def/fused_program.h"
#include "ops/def/native_tensor.h"
#include "ops/def/operator_def.h"
#include "runtime/accelerator/communicator.h"

namespace dtorch {

struct MemoryCounter;  // runtime/worker/native/native_memory.h

// A point in a stream's work. Counted; may outlive its stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // All that the stream had been given before has run, or has failed. Doesn't block.
  virtual bool has_passed() const = 0;
};
using DeviceEventPtr = std::shared_ptr<const DeviceEvent>;

// Where a stream is: the operator whose work was enqueued last, or runs.
struct StreamMark {
  uint64_t sequence = 0;
  uint32_t op_index = 0;
  friend bool operator==(const StreamMark&, const StreamMark&) = default;
};

// A call of an operator's kernel.
struct KernelLaunch {
  KernelFn kernel = nullptr;
  const LocalOperator& local;  // lives as long as the stream may look at it: until its work has run
  std::span<NativeTensor> inputs;
  std::span<NativeTensor> outputs;      // set when launch() returns
  std::span<const Scalar> scalars;      // the caller's: copied where they are needed later
  std::span<const OperandId> operands;  // kLastUse: the kernel may take over the input's memory
  // The kernel looks at its inputs' contents, because sizes of its results are data or it has effects outside: launch()
  // waits for the stream and runs it on the caller's thread.
  bool waits = false;
  MemoryCounter* memory = nullptr;  // what the outputs are charged to, where the library counts by value
};

// What a stream was given between begin_capture() and end_capture(): the same kernels on the same memory, as one piece
// of the stream's work, as often as it is launched. May be destroyed on any thread; what was launched still runs.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Enqueues it on its stream, by the stream's thread. What fails in it is told as of any work; it belongs to the
  // operator that is marked, or, where the backend knows it, to the captured one as far behind that as at the capture.
  virtual void launch() = 0;
};

// Work in order. What several streams do is ordered by events alone.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;  // waits for its work
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  // --- order
  virtual DeviceEventPtr record() = 0;
  // What is enqueued from now on runs after the event, of any stream of any accelerator of this process.
  virtual void wait(const DeviceEventPtr& event) = 0;
  // Calls `errand` when all that was enqueued before has run or failed (its failures have been told before), on a
  // thread that isn't the device's way forward: it may call anything here except what waits for a device. In order of a
  // stream. Always called, at the latest by the destructor.
  virtual void call_on_host(std::function<void()> errand) = 0;
  // Blocks until all that was enqueued has run or failed, errands too. Not in an errand.
  virtual void synchronize() = 0;

  // --- memory
  // Uninitialised and contiguous, of this accelerator; for use on this stream from now on. Freed with its last handle,
  // on whatever thread: what this stream was given before still sees it, and so do streams it was shared with. Charged
  // to `memory` when it isn't null.
  virtual NativeTensor allocate(const Shape& local_shape, DType dtype, MemoryCounter* memory) = 0;
  // A value that another stream's allocate() or kernel made is used on this stream, too (after wait() on the maker's
  // event): from now on its memory isn't given to others before what this stream has until its last handle goes.
  virtual void share(const NativeTensor& value) = 0;
  // Holds the handles until what is enqueued so far has run: for values that others might otherwise take over or free.
  virtual void keep(std::vector<NativeTensor> values) = 0;

  // --- work
  // Same local shape and dtype, any strides; each on the host, this accelerator or another of this process (the library
  // finds a way, through the host if need be). Host tensors are held until it has run; others are the caller's to
  // keep() where their last handle may go on another stream. Host tensors that aren't of Accelerator::allocate_host may
  // make the call wait.
  virtual void copy(const NativeTensor& from, const NativeTensor& to) = 0;
  virtual void set_zero(const NativeTensor& value) = 0;
  // Folds contiguous parts in order, element by element, as runtime/comm's fold_parts: kAvg as kSum, then the quotient
  // by `divisor` rounded once. `result` may be one of them.
  virtual void fold(std::span<const NativeTensor> parts, ReduceOp reduce, int64_t divisor,
                    const NativeTensor& result) = 0;
  // Runs an operator's kernel on this stream: sets the outputs now, their contents in order.
  virtual void launch(const KernelLaunch& call) = 0;
  // A run of elementwise operators as one kernel of this stream; null when they have to be run one by one.
  // FusedKernel::run enqueues; scalars of set_scalars are its own then.
  virtual std::unique_ptr<FusedKernel> fuse(const FusedProgram& program) = 0;

  // --- capture
  // Until end_capture() what the calling thread gives this stream is written down, not run. Allowed are mark, allocate,
  // set_zero, fold, copies within the accelerator, launch, what fuse() made, and that tensors die; all else (events,
  // errands, keep, share, host memory, kernels that wait, another capture) throws RuntimeFault, as may what a kernel
  // does that the device can't capture. Memory allocated meanwhile, kernels' temporaries too, is no other's as long as
  // the graph lives, but may be that of other graphs of the stream: contents count within a launch, and until the work
  // behind it that was enqueued before the next one. Other memory has to be there whenever it is launched.
  virtual void begin_capture() = 0;
  // Always called after begin_capture(), by its thread. Throws RuntimeFault where something couldn't be captured.
  virtual std::unique_ptr<DeviceGraph> end_capture() = 0;
  // A tensor of the same memory and layout that owns nothing: valid while `value` or a copy of it lives.
  virtual NativeTensor unowned(const NativeTensor& value) = 0;

  // --- sight
  // What is enqueued from now on belongs to this operator.
  virtual void mark(const StreamMark& mark) = 0;
  // The mark of what runs now or ran last. A backend may know it to some operators only.
  virtual StreamMark marked() const = 0;
  // Told of what fails after it was enqueued, by any thread, before any errand behind it, with its operator (or, where
  // the backend can't tell, the nearest before it that it knows). Set before the first work. Later work may fail, too.
  using FailureHandler = std::function<void(const StreamMark& mark, const std::string& what)>;
  virtual void set_failure_handler(FailureHandler handler) = 0;

 protected:
  DeviceStream() = default;
};

struct AcceleratorInfo {
  struct Link {
    int32_t to = 0;    // accelerator of this process
    std::string kind;  // "NVLink 4", "PCIe", "same board"
    bool has_peer_access = false;
  };
  int32_t index = 0;  // among those of this process
  std::string name;
  std::string bus_id;  // of the physical device; "" when there is none
  int64_t memory_bytes = 0;
  int32_t numa_node = -1;  // -1: not known
  std::string capability;  // "9.0"
  std::vector<Link> links;
};

struct AcceleratorMemory {
  int64_t total_bytes = 0;         // of the device
  int64_t free_bytes = 0;          // as the driver sees it
  int64_t allocated_bytes = 0;     // of values and kernels' temporaries of this process
  int64_t reserved_bytes = 0;      // of the driver, in use or not
  int64_t largest_free_bytes = 0;  // the largest piece of what is reserved and not in use
};

enum class StreamKind : uint8_t { kCompute, kCommunication, kCopy };

// One physical device.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  virtual const AcceleratorInfo& info() const = 0;
  virtual AcceleratorMemory memory() const = 0;
  // By the thread that drives streams of this accelerator, before its first call: current device, NUMA binding, guards.
  // Undone on the same thread when the scope is destroyed.
  class ThreadScope {
   public:
    virtual ~ThreadScope() = default;
  };
  virtual std::unique_ptr<ThreadScope> enter_thread(int32_t threads_per_device) = 0;
  virtual std::unique_ptr<DeviceStream> new_stream(StreamKind kind) = 0;
  // Uninitialised and contiguous host memory that streams copy from and to without a wait (pinned).
  virtual NativeTensor allocate_host(const Shape& local_shape, DType dtype) = 0;
};

// A kind of accelerator: what libdtorch_cuda.so gives, through extern "C" dtorch_cuda_entry().
class AcceleratorLibrary {
 public:
  virtual ~AcceleratorLibrary() = default;
  virtual std::string name() const = 0;  // "cuda", "fake"
  // Those that this process may use; the objects live as long as the library.
  virtual int32_t num_accelerators() const = 0;
  virtual Accelerator& accelerator(int32_t index) = 0;
  // An operator's kernel on this kind of device; null when there is none.
  virtual KernelFn kernel_of(const OperatorDef& def) = 0;
  // What an exception that left a call says, without backtraces.
  virtual std::string error_text(const std::exception_ptr& error) = 0;
  // Null: devices of several processes can't talk to each other but through the host.
  virtual CommunicatorFactory* communicators() = 0;
};

}  // namespace dtorch
