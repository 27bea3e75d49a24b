#include "runtime/accelerator/fake/fake_stream.h"

#include <algorithm>

#include "runtime/accelerator/fake/fake_faults.h"
#include "runtime/accelerator/fake/fake_memory.h"
#include "runtime/comm/transfer.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch::fake {
namespace {

Faults& faults() {
  static Faults instance;
  return instance;
}

// A kernel's call with all that it needs later.
struct LaterCall {
  explicit LaterCall(const KernelLaunch& call)
      : kernel(call.kernel),
        local(call.local),
        scalars(call.scalars.begin(), call.scalars.end()),
        operands(call.operands.begin(), call.operands.end()) {
    for (const NativeTensor& input : call.inputs) inputs.push_back(input ? memory_of(input) : input);
    for (OperandId& operand : operands) operand &= kMaxOperand;  // what was taken over was decided at the call
  }

  void run() {
    std::vector<NativeTensor> results(outputs.size());
    KernelContext context(local, inputs, results, scalars, operands, nullptr);
    kernel(context);
    // An output may have the memory of an input, and a result be a view of one.
    std::vector<std::vector<std::byte>> packed;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!results[i] || results[i].dtype() != outputs[i].dtype() ||
          results[i].local_shape() != outputs[i].local_shape()) {
        throw InternalError("output " + std::to_string(i) + " is " + (results[i] ? results[i].str() : "empty") +
                            ", inferred was " + outputs[i].str());
      }
      packed.emplace_back(static_cast<size_t>(results[i].num_bytes()));
      pack_box(results[i], whole(results[i].local_shape()), packed.back().data());
    }
    for (size_t i = 0; i < outputs.size(); ++i)
      unpack_box(packed[i].data(), outputs[i], whole(outputs[i].local_shape()));
  }

  const KernelFn kernel;
  const LocalOperator& local;
  std::vector<NativeTensor> inputs, outputs;
  const std::vector<Scalar> scalars;
  std::vector<OperandId> operands;
};

// An input whose memory the output may have: nobody else will see it.
bool may_take_over(const KernelLaunch& call, size_t input, const Shape& local_shape, DType dtype) {
  const NativeTensor& value = call.inputs[input];
  return value && (call.operands[input] & kLastUse) != 0 && value.dtype() == dtype &&
         value.local_shape() == local_shape && value.is_contiguous() && value.is_reusable();
}

}  // namespace

void plant(const Faults& planted) { faults() = planted; }
const Faults& planted() { return faults(); }

Stream::~Stream() { driver_.close(queue_); }

std::function<void()> Stream::guarded(std::function<void()> run) const {
  return [driver = &driver_, run = std::move(run)] {
    try {
      run();
    } catch (...) {
      driver->tell_failure(driver->setup()->error_text(std::current_exception()));
    }
  };
}

DeviceEventPtr Stream::record() {
  require_no_capture("an event");
  auto event = std::make_shared<Event>(queue_->kind);
  driver_.push(*queue_, [event] { event->passed.store(true, std::memory_order_release); });
  return event;
}

void Stream::wait(const DeviceEventPtr& event) {
  require_no_capture("a wait for another stream");
  const auto awaited = std::static_pointer_cast<const Event>(event);
  if (faults().missing_wait == std::pair(queue_->kind, awaited->kind)) return;
  driver_.push(
      *queue_, [] {}, [awaited] { return awaited->has_passed(); });
}

void Stream::call_on_host(std::function<void()> errand) {
  require_no_capture("a call on the host");
  driver_.push(*queue_, [driver = &driver_, queue = queue_, errand = std::move(errand)]() mutable {
    driver->call_on_host(queue, std::move(errand));
  });
}

void Stream::synchronize() {
  require_no_capture("a wait for the device");
  driver_.drain(*queue_);
}

NativeTensor Stream::allocate(const Shape& local_shape, DType dtype, MemoryCounter* memory) {
  return fake::allocate(driver_, queue_, local_shape, dtype, memory);
}

void Stream::share(const NativeTensor& value) {
  require_no_capture("a value of another stream");
  if (!faults().missing_share) fake::share(value, queue_);
}

void Stream::keep(std::vector<NativeTensor> values) {
  require_no_capture("handles");
  if (faults().missing_keep) return;
  driver_.push(*queue_, [values = std::move(values)] {});
}

void Stream::copy(const NativeTensor& from, const NativeTensor& to) {
  if (!is_of_device(from) || !is_of_device(to)) require_no_capture("a copy of host memory");
  if (faults().missing_graph_input && capture_of_thread() == nullptr && graph_memory_.contains(storage_of(to))) return;
  push([from = memory_of(from), to = memory_of(to)] {
    copy_box(from, whole(from.local_shape()), to, whole(from.local_shape()));
  });
}

void Stream::set_zero(const NativeTensor& value) {
  push([value = memory_of(value)] {
    const std::vector<std::byte> zeros(static_cast<size_t>(value.num_bytes()));
    unpack_box(zeros.data(), value, whole(value.local_shape()));
  });
}

void Stream::fold(std::span<const NativeTensor> parts, ReduceOp reduce, int64_t divisor, const NativeTensor& result) {
  std::vector<NativeTensor> memory;
  for (const NativeTensor& part : parts) memory.push_back(memory_of(part));
  push([parts = std::move(memory), reduce, divisor, result = memory_of(result)] {
    std::vector<const std::byte*> data;
    for (const NativeTensor& part : parts) data.push_back(part.data());
    fold_parts(data, result.num_elements(), result.dtype(), reduce, divisor, result.data());
  });
}

void Stream::launch(const KernelLaunch& call) {
  if (call.waits) return launch_at_once(call);
  auto later = std::make_shared<LaterCall>(call);
  std::vector<bool> is_taken(call.inputs.size());
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Shape& local_shape = call.local.output_boxes[i].size;
    const DType dtype = call.local.spec->outputs[i]->dtype;
    NativeTensor& output = call.outputs[i];
    for (size_t input = 0; input < call.inputs.size() && !output; ++input) {
      if (is_taken[input] || !may_take_over(call, input, local_shape, dtype)) continue;
      is_taken[input] = true;
      output = call.inputs[input];
    }
    if (!output) output = allocate(local_shape, dtype, call.memory);
    later->outputs.push_back(memory_of(output));
  }
  push([later] { later->run(); });
}

// On the caller's thread, when all that it reads is there.
void Stream::launch_at_once(const KernelLaunch& call) {
  synchronize();
  std::vector<NativeTensor> results(call.outputs.size());
  std::vector<OperandId> operands(call.operands.begin(), call.operands.end());
  for (OperandId& operand : operands) operand &= kMaxOperand;
  KernelContext context(call.local, call.inputs, results, call.scalars, operands, nullptr);
  call.kernel(context);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i]) continue;
    call.outputs[i] = allocate(results[i].local_shape(), results[i].dtype(), call.memory);
    copy(results[i], call.outputs[i]);
  }
}

}  // namespace dtorch::fake
