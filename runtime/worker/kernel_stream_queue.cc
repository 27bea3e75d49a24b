// KernelStream on a device that runs behind the host: a call enqueues, and events go with what leaves the stream
// (docs/gpu.md). What it waits for on the host is what arrives from other threads, as on the CPU.
#include <atomic>
#include <map>
#include <utility>

#include "runtime/worker/collective_move.h"
#include "runtime/worker/kernel_stream_call.h"
#include "runtime/worker/read_sender.h"

namespace dtorch {

void KernelStream::report_device_failures() {
  queue_->set_failure_handler([node = node_, device = device_](const StreamMark& mark, const std::string& what) {
    node->report(device, mark.sequence, mark.op_index, what);
  });
}

void KernelStream::finish_part(PieceRun* run) {
  // What a thread that only walks hands out has parts of its own.
  if (!queue_ || run->errand || !streams_.empty()) return run->finish_part();
  // The device's threads may be asleep by then, so nobody else would send the acknowledgement.
  device_stream().call_on_host([run, node = node_] {
    run->finish_part();
    node->acks.flush();
  });
}

void KernelStream::launch_kernel(Call& call, std::span<NativeTensor> outputs) {
  const std::span<const OperandId> ids = call.inputs();
  std::vector<OperandId> kept;
  if (!may_take_over()) {
    for (OperandId id : ids) kept.push_back(id & kMaxOperand);
  }
  device_stream().mark({call.run.piece.sequence, call.number()});
  device_stream().launch({.kernel = call.spec->kernel,
                          .local = call.spec->local,
                          .inputs = {inputs_.data(), ids.size()},
                          .outputs = outputs,
                          .scalars = call.scalars(),
                          .operands = kept.empty() ? ids : std::span<const OperandId>(kept),
                          .waits = call.spec->has_effect || call.spec->ragged_outputs != 0,
                          .memory = statistics_.memory});
}

// The kernel fills memory of the host, since that is where its data is.
void KernelStream::launch_feed(const Call& call, std::span<NativeTensor> outputs, const std::byte* feed) {
  std::vector<NativeTensor> results(outputs.size());
  KernelContext context(call.spec->local, {}, results, call.scalars(), {}, feed);
  call.spec->kernel(context);
  queue_->mark({call.run.piece.sequence, call.number()});
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = queue_->from_host(results[i], device_stream());
}

void KernelStream::provide_from_queue(const Call& call, PieceRun::Move& move) {
  const size_t num_inputs = call.inputs().size();
  PieceRun* const run = &call.run;
  run->parts.fetch_add(1, std::memory_order_relaxed);
  queue_->mark({run->piece.sequence, call.number()});
  // Copies come one after the other, the last one's end is that of all.
  auto source = std::make_shared<MoveSources::Source>();
  for (size_t i = 0; i < num_inputs; ++i) {
    const bool is_last = i + 1 == num_inputs;
    queue_->to_host(device_stream(), inputs_[i],
                    [source, i, is_last, run, &move, device = device_](NativeTensor value) {
                      source->values[i] = std::move(value);
                      if (!is_last) return;
                      PieceRun::provide(move, device, std::move(*source));
                      run->finish_part();
                    });
  }
}

// Of a value that is on its way the table keeps the promise: with several streams others want its event, too.
DeviceMove::Part KernelStream::input_of_move(const Call& call) {
  Blob& blob = call.blob(call.inputs()[0]);
  if (blob.pending) {
    const Arrival& arrival = *blob.pending;
    parker_->wait([&] { return arrival.event.is_set() || aborting(); },
                  [&] {
                    position_.wait_for(arrival.place);
                    node_->acks.flush();
                  });
    position_.go_on();
    if (!arrival.event.is_set())
      return {{}, nullptr, make_intrusive<Poison>("the job is ending", device_, arrival.place.sequence, 0)};
    if (arrival.poison || arrival.ready) return {arrival.value, arrival.ready, arrival.poison};
    const NativeTensor value = queue_->from_host(arrival.value, device_stream());
    return {value, device_stream().record(), nullptr};
  }
  if (blob.poison) return {{}, nullptr, blob.poison};
  DTORCH_CHECK(blob.value, "operand " + std::to_string(call.inputs()[0] & kMaxOperand) + " has no value on device " +
                               std::to_string(device_));
  return {blob.value, device_stream().record(), nullptr};
}

void KernelStream::run_collectives(Call& call) {
  const IntrusivePtr<Arrival> arrival = call.run.moves[call.next_move].arrivals[local_index_];
  DeviceMove::Part result;
  if (aborting()) {
    result.poison = make_intrusive<Poison>("the job is ending", device_, call.run.piece.sequence, call.number());
  } else {
    try {
      DeviceMove::Part source;
      if (call.spec->holds_input[0]) source = input_of_move(call);
      const PoisonPtr poison = source.poison;
      result = enqueue_collectives(call, std::move(source));
      result.poison = poison;
    } catch (...) {
      result.poison = fail(call, std::current_exception());
    }
  }
  release_inputs(call);
  expect_arrivals(call);
  if (!arrival) return;
  if (result.poison)
    arrival->poison = result.poison;
  else
    arrival->value = std::move(result.value);
  arrival->ready = std::move(result.made);
  arrival->event.set();
}

// A device whose value is missing has part all the same, so that nobody waits for it.
DeviceMove::Part KernelStream::enqueue_collectives(const Call& call, DeviceMove::Part source) {
  std::map<std::vector<int64_t>, Communicator*> communicators;
  for (const DevicePlan::Step& step : call.spec->collectives->steps)
    communicators[step.group] =
        &node_->communicators->of(call.run.piece.graph, step.group, device_, queue_->accelerator());
  PieceRun* const run = &call.run;
  return queue_->communicate([&](DeviceStream& stream) -> DeviceMove::Part {
    stream.mark({run->piece.sequence, call.number()});
    if (source.poison) {
      source.value = stream.allocate(call.spec->local.input_boxes[0].size, call.spec->local.spec->inputs[0]->dtype,
                                     statistics_.memory);
      stream.set_zero(source.value);
    }
    if (source.made) stream.wait(source.made);
    const CollectiveMove move{
        *call.spec->collectives,
        [&](const std::vector<int64_t>& group) -> Communicator& { return *communicators.at(group); },
        node_->communicators->factory(), stream, statistics_.memory};
    NativeTensor result = move.run(source.value);
    if (source.value) stream.keep({source.value});
    run->parts.fetch_add(1, std::memory_order_relaxed);
    stream.call_on_host([run] { run->finish_part(); });
    return {std::move(result), stream.record(), nullptr};
  });
}

void KernelStream::read_from_queue(const Call& call, uint64_t read) {
  const Box& box = call.spec->local.input_boxes[0];
  if (box.empty()) return;
  PieceRun* const run = &call.run;
  run->parts.fetch_add(1, std::memory_order_relaxed);
  queue_->mark({run->piece.sequence, call.number()});
  queue_->to_host(device_stream(), inputs_[0], [run, read, box](const NativeTensor& part) {
    send_part(*run->node, read, part, box);
    run->finish_part();
  });
}

void KernelStream::take_from_arrival(const Call& call, const Arrival& arrival, Blob& blob) {
  try {
    if (!arrival.ready) {
      blob.value = queue_->from_host(blob.value, device_stream());
      return;
    }
    device_stream().wait(arrival.ready);
    device_stream().share(blob.value);
  } catch (...) {
    blob.value.reset();
    blob.poison = fail(call, std::current_exception());
  }
}

void KernelStream::take_to_host(KeptPart& part) {
  for (KeptValue& kept : part) {
    if (!kept.value) continue;
    const NativeTensor value = std::exchange(kept.value, {});
    queue_->to_host(device_stream(), value, [&kept](NativeTensor host) { kept.value = std::move(host); });
  }
  queue_->synchronize();
}

void KernelStream::set_zeros_on_device(const Call& call, std::span<NativeTensor> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = device_stream().allocate(call.spec->local.output_boxes[i].size,
                                          call.spec->local.spec->outputs[i]->dtype, statistics_.memory);
    device_stream().set_zero(outputs[i]);
  }
}

}  // namespace dtorch
