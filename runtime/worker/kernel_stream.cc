#include "runtime/worker/kernel_stream.h"

#include <algorithm>

#include "runtime/worker/native/native_metadata.h"
#include "runtime/worker/read_sender.h"

namespace dtorch {
namespace {

void set_value(Blob& blob, NativeTensor value) {
  blob.reset();
  blob.value = std::move(value);
}

}  // namespace

// One operator of a piece, on this device.
struct KernelStream::Call {
  PieceRun& run;
  Table& table;
  const Operator* op = nullptr;
  uint32_t op_index = 0;
  const LocalSpec* spec = nullptr;
  size_t next_move = 0, next_feed = 0;  // cursors into the run's lists

  std::span<const OperandId> inputs() const { return run.piece.graph_part.inputs(*op); }
  std::span<const OperandId> outputs() const { return run.piece.graph_part.outputs(*op); }
  std::span<const Scalar> scalars() const { return run.piece.graph_part.scalars_of(*op); }
  Blob& blob(OperandId id) const { return table.slots[id & kMaxOperand]; }
};

KernelStream::KernelStream(std::shared_ptr<NodeContext> node, DeviceBackend& backend, size_t local_index,
                           int64_t device)
    : node_(std::move(node)),
      backend_(backend),
      local_index_(local_index),
      device_(device),
      statistics_(node_->devices[local_index]),
      parker_(std::make_shared<Parker>()),
      thread_([this] { loop(); }) {}

KernelStream::~KernelStream() { stop(); }

void KernelStream::push(PieceRun* run) {
  {
    std::lock_guard lock(mutex_);
    pushed_.push_back(run);
  }
  available_.store(true, std::memory_order_release);
  parker_->wake();
}

void KernelStream::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  available_.store(true, std::memory_order_release);
  parker_->wake();
  if (thread_.joinable()) thread_.join();
}

void KernelStream::loop() {
  auto scope = backend_.enter_thread(node_->config.threads_per_device, statistics_.memory);
  std::vector<PieceRun*> runs;
  for (bool stopping = false; !stopping;) {
    parker_->wait([&] { return available_.load(std::memory_order_acquire); }, [&] { node_->acks.flush(); });
    available_.store(false, std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex_);
      runs.swap(pushed_);
      stopping = stop_;
    }
    for (PieceRun* run : runs) {
      execute(*run);
      statistics_.kernels_run.store(kernels_run_, std::memory_order_relaxed);
      run->finish_part();
    }
    runs.clear();
  }
  tables_.clear();
  inputs_.clear();
  outputs_.clear();
}

void KernelStream::execute(PieceRun& run) noexcept {
  if (broken_) return;
  try {
    walk(run);
  } catch (...) {
    // What isn't the matter of one operator: no memory for the tables.
    broken_ = true;
    node_->report(-1, run.piece.sequence, 0,
                  "device " + std::to_string(device_) + ": " + backend_.error_text(std::current_exception()));
  }
}

void KernelStream::walk(PieceRun& run) {
  if (tables_.size() <= run.graph) tables_.resize(run.graph + 1);
  Table& table = tables_[run.graph];
  for (const LoweredSpec* spec : run.new_specs) {
    if (table.specs.size() <= spec->spec.id) table.specs.resize(size_t{spec->spec.id} + 1);
    table.specs[spec->spec.id] = &spec->devices[local_index_];
  }
  if (table.slots.size() < run.num_slots) table.slots.resize(std::max(run.num_slots, 2 * table.slots.size()));
  Call call{run, table};
  for (const Operator& op : run.piece.graph_part.operators) {
    call.op = &op;
    if (op.spec == kReleaseSpec) {
      for (OperandId id : call.inputs()) call.blob(id).reset();
    } else {
      call.spec = table.specs[op.spec];
      execute_call(call);
    }
    ++call.op_index;
  }
}

void KernelStream::execute_call(Call& call) {
  switch (call.spec->action) {
    case Action::kSkip:
      release_inputs(call);
      break;
    case Action::kKernel:
      run_kernel(call);
      break;
    case Action::kAlias:
    case Action::kLocal:
      run_alias(call);
      break;
    case Action::kMove:
      run_move(call);
      break;
    case Action::kRead:
      run_read(call);
      break;
  }
}

void KernelStream::run_kernel(Call& call) {
  PoisonPtr poison = take_inputs(call);
  size_t num_outputs = call.op->num_outputs;
  if (outputs_.size() < num_outputs) outputs_.resize(num_outputs);
  std::span<NativeTensor> outputs(outputs_.data(), num_outputs);
  const std::byte* feed = nullptr;
  if (!poison) {
    try {
      if (call.spec->uses_feed) feed = feed_of(call);
      std::span<const OperandId> ids = call.inputs();
      KernelContext context(call.spec->local, {inputs_.data(), ids.size()}, outputs, call.scalars(), ids, feed);
      call.spec->kernel(context);
      ++kernels_run_;
      check_outputs(call, outputs);
    } catch (...) {
      poison = fail(call, std::current_exception());
      for (NativeTensor& output : outputs) output.reset();
    }
  }
  if (call.spec->uses_feed) done_with_feed(call);
  put_back_inputs(call);
  if (poison) return poison_outputs(call, poison);
  std::span<const OperandId> ids = call.outputs();
  for (size_t i = 0; i < num_outputs; ++i) set_value(call.blob(ids[i]), std::move(outputs[i]));
}

void KernelStream::check_outputs(const Call& call, std::span<const NativeTensor> outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Shape& inferred_shape = call.spec->local.output_boxes[i].size;
    DType inferred_dtype = call.spec->local.spec->outputs[i]->dtype;
    // A value that isn't there would be a crash later, so that is always looked at.
    if (node_->config.check_metadata ? has_metadata(outputs[i], inferred_shape, inferred_dtype)
                                     : static_cast<bool>(outputs[i])) {
      continue;
    }
    throw InternalError("output " + std::to_string(i) + " is " + outputs[i].str() + ", inferred was " +
                        name_of(inferred_dtype) + " " + inferred_shape.str());
  }
}

void KernelStream::run_alias(Call& call) {
  PoisonPtr poison = take_inputs(call);
  NativeTensor value;
  if (!poison) {
    try {
      value = call.spec->action == Action::kAlias ? inputs_[0] : call.spec->move.run(inputs_[0], backend_);
      check_outputs(call, {&value, 1});
    } catch (...) {
      poison = fail(call, std::current_exception());
    }
  }
  put_back_inputs(call);
  if (poison) return poison_outputs(call, poison);
  set_value(call.blob(call.outputs()[0]), std::move(value));
}

void KernelStream::run_move(Call& call) {
  std::deque<PieceRun::Move>& moves = call.run.moves;
  while (moves[call.next_move].op_index != call.op_index) ++call.next_move;
  PieceRun::Move& move = moves[call.next_move];
  if (call.spec->holds_input[0]) {
    PoisonPtr poison = take_inputs(call);
    NativeTensor value = poison ? NativeTensor() : inputs_[0];
    put_back_inputs(call);
    PieceRun::provide(move, device_, std::move(value), std::move(poison));
  } else {
    release_inputs(call);
  }
  if (move.arrivals[local_index_]) {
    Blob& blob = call.blob(call.outputs()[0]);
    blob.reset();
    blob.pending = std::move(move.arrivals[local_index_]);
  }
}

void KernelStream::run_read(Call& call) {
  std::span<const Scalar> scalars = call.scalars();
  PoisonPtr poison = take_inputs(call);
  if (!poison) {
    try {
      DTORCH_CHECK(scalars.size() == 2, "a read has two scalars");
      int64_t reader = scalars[1].as_int();
      bool sends = reader < 0 ? call.spec->sends_box : reader == device_;
      if (sends) send_part(*node_, scalars[0].bits, inputs_[0], call.spec->local.input_boxes[0]);
    } catch (...) {
      fail(call, std::current_exception());
    }
  }
  put_back_inputs(call);
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
    poison = make_intrusive<Poison>("the job is ending", device_, call.run.piece.sequence, call.op_index);
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
    if ((id & kLastUse) != 0) call.blob(id).reset();
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
  parker_->wait([&] { return arrival.event.is_set() || aborting(); }, [&] { node_->acks.flush(); });
  if (!arrival.event.is_set()) {
    blob.poison = make_intrusive<Poison>("the job is ending", device_, call.run.piece.sequence, call.op_index);
  } else if (arrival.poison) {
    blob.poison = arrival.poison;
  } else {
    blob.value = std::move(arrival.value);
    // What came as one storage with its source, and whose source has gone since.
    if (blob.value && blob.value.is_sole_owner()) charge_storage(blob.value, *statistics_.memory);
    const TensorMeta& meta = *call.spec->local.spec->inputs[input];
    const Shape& local_shape = call.spec->local.input_boxes[input].size;
    if (node_->config.check_metadata && !has_metadata(blob.value, local_shape, meta.dtype)) {
      blob.poison = fail(call, std::make_exception_ptr(InternalError("input " + std::to_string(input) + " arrived as " +
                                                                     blob.value.str() + ", inferred was " +
                                                                     name_of(meta.dtype) + " " + local_shape.str())));
      blob.value.reset();
    }
  }
  blob.pending.reset();
}

PoisonPtr KernelStream::fail(const Call& call, const std::exception_ptr& error) {
  std::string text = backend_.error_text(error);
  node_->report(device_, call.run.piece.sequence, call.op_index, text);
  return make_intrusive<Poison>(std::move(text), device_, call.run.piece.sequence, call.op_index);
}

const std::byte* KernelStream::feed_of(Call& call) {
  std::deque<PieceRun::FeedUse>& feeds = call.run.feeds;
  while (call.next_feed < feeds.size() && feeds[call.next_feed].op_index < call.op_index) ++call.next_feed;
  DTORCH_CHECK(call.next_feed < feeds.size() && feeds[call.next_feed].op_index == call.op_index,
               "its host data hasn't arrived");
  const Bytes& bytes = *feeds[call.next_feed].bytes;
  const int64_t needed = call.spec->local.spec->outputs[0]->num_bytes();
  DTORCH_CHECK(static_cast<int64_t>(bytes.size()) >= needed,
               "its host data has " + std::to_string(bytes.size()) + " bytes, needed are " + std::to_string(needed));
  return bytes.data();
}

void KernelStream::done_with_feed(Call& call) {
  for (PieceRun::FeedUse& use : call.run.feeds) {
    if (use.op_index != call.op_index) continue;
    if (use.users.fetch_sub(1, std::memory_order_acq_rel) == 1) use.bytes.reset();
  }
}

}  // namespace dtorch
