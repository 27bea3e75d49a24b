// What a KernelStream does with operands around a call: taking inputs, waiting for what is on its way, looking at
// results. Calls themselves are in kernel_stream.cc.
#include "runtime/worker/kernel_stream_call.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch {
namespace {

// Whether a value is what was inferred of a device's part. A ragged one has rows of the right length (row_exchange.h).
bool fits(const NativeTensor& value, const Shape& local_shape, DType dtype, bool is_ragged) {
  if (!is_ragged) return has_metadata(value, local_shape, dtype);
  return value && value.dtype() == dtype && value.local_shape().ndim() == 2 &&
         value.local_shape().back() == local_shape.back();
}

std::string inferred_text(const Shape& local_shape, DType dtype, bool is_ragged) {
  if (!is_ragged) return std::string(name_of(dtype)) + " " + local_shape.str();
  return std::string(name_of(dtype)) + " rows [n, " + std::to_string(local_shape.back()) + "]";
}

}  // namespace

void KernelStream::check_outputs(const Call& call, std::span<const NativeTensor> outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Shape& inferred_shape = call.spec->local.output_boxes[i].size;
    DType inferred_dtype = call.spec->local.spec->outputs[i]->dtype;
    // A value that isn't there would be a crash later, so that is always looked at.
    if (node_->config.check_metadata ? fits(outputs[i], inferred_shape, inferred_dtype, call.spec->is_ragged_output(i))
                                     : static_cast<bool>(outputs[i])) {
      continue;
    }
    throw InternalError("output " + std::to_string(i) + " is " + outputs[i].str() + ", inferred was " +
                        inferred_text(inferred_shape, inferred_dtype, call.spec->is_ragged_output(i)));
  }
}

PoisonPtr KernelStream::take_inputs(Call& call) {
  std::span<const OperandId> ids = call.inputs();
  if (inputs_.size() < ids.size()) inputs_.resize(ids.size());
  PoisonPtr poison;
  for (size_t i = 0; i < ids.size(); ++i) {
    Blob& blob = call.blob(ids[i]);
    if (blob.pending) settle(blob, call, i);
    if (blob.poison) {
      if (!poison) poison = blob.poison;
      continue;
    }
    inputs_[i] = std::move(blob.value);
    blob.data = nullptr;
    if (inputs_[i] || !call.spec->holds_input[i]) continue;
    // The same operand twice: an earlier input took it.
    for (size_t j = 0; j < i && !inputs_[i]; ++j) {
      if ((ids[j] & kMaxOperand) == (ids[i] & kMaxOperand)) inputs_[i] = inputs_[j];
    }
    if (inputs_[i] || poison) continue;
    poison = fail(call, std::make_exception_ptr(InternalError("operand " + std::to_string(ids[i] & kMaxOperand) +
                                                              " has no value on device " + std::to_string(device_))));
  }
  if (!poison && aborting())
    poison = make_intrusive<Poison>("the job is ending", device_, call.run.piece.sequence, call.number());
  return poison;
}

void KernelStream::put_back_inputs(Call& call) {
  std::span<const OperandId> ids = call.inputs();
  bool any_last_use = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    if ((ids[i] & kLastUse) != 0) {
      any_last_use = true;
    } else if (inputs_[i]) {
      call.blob(ids[i]).value = std::move(inputs_[i]);
    }
    inputs_[i].reset();
  }
  if (any_last_use) release_inputs(call);
}

void KernelStream::release_inputs(const Call& call) {
  for (OperandId id : call.inputs()) {
    if ((id & kLastUse) != 0) drop(call.blob(id));
  }
}

void KernelStream::poison_outputs(const Call& call, const PoisonPtr& poison) {
  for (OperandId id : call.outputs()) {
    Blob& blob = call.blob(id);
    blob.reset();
    blob.poison = poison;
  }
}

void KernelStream::settle(Blob& blob, const Call& call, size_t input) {
  Arrival& arrival = *blob.pending;
  const bool waits = observer_.observes() && !arrival.event.is_set();
  if (waits) observer_.begin_wait();
  parker_->wait([&] { return arrival.event.is_set() || aborting(); },
                [&] {
                  position_.wait_for(arrival.place);
                  node_->acks.flush();
                });
  position_.go_on();
  if (waits) observer_.end_wait(call.run.piece.graph, arrival);
  if (!arrival.event.is_set()) {
    blob.poison = make_intrusive<Poison>("the job is ending", device_, call.run.piece.sequence, call.number());
  } else if (arrival.poison) {
    blob.poison = arrival.poison;
  } else {
    // What came as one storage with its source, and whose source has gone since.
    const bool is_own = is_one_of_several_ ? arrival.ref_count() == 1 : !arrival.is_shared;
    if ((is_own || !is_one_of_several_) && arrival.value && arrival.value.is_sole_owner())
      charge_storage(arrival.value, *statistics_.memory);
    // Others that wait for it don't count it again.
    if (observer_.observes() && arrival.is_ragged.exchange(false, std::memory_order_relaxed))
      observer_.take_rows(call.run.piece.graph, arrival);
    blob.value = is_own ? std::move(arrival.value) : arrival.value;
    if (queue_) take_from_arrival(call, arrival, blob);
    const TensorMeta& meta = *call.spec->local.spec->inputs[input];
    const Shape& local_shape = call.spec->local.input_boxes[input].size;
    const bool is_ragged = call.spec->is_ragged_input(input);
    if (!blob.poison && node_->config.check_metadata && !fits(blob.value, local_shape, meta.dtype, is_ragged)) {
      blob.poison = fail(call, std::make_exception_ptr(InternalError(
                                   "input " + std::to_string(input) + " arrived as " + blob.value.str() +
                                   ", inferred was " + inferred_text(local_shape, meta.dtype, is_ragged))));
      blob.value.reset();
    }
  }
  blob.pending.reset();
}

}  // namespace dtorch
