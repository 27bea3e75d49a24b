#include "runtime/worker/kernel_stream.h"

#include <algorithm>

#include "ops/def/effects.h"
#include "runtime/worker/kernel_stream_call.h"
#include "runtime/worker/native/native_metadata.h"
#include "runtime/worker/prepared_check.h"
#include "runtime/worker/read_sender.h"
#include "runtime/worker/stream_task.h"

namespace dtorch {
namespace {

void set_value(Blob& blob, NativeTensor value) {
  blob.reset();
  blob.value = std::move(value);
}

}  // namespace

KernelStream::KernelStream(std::shared_ptr<NodeContext> node, DeviceBackend& backend, size_t local_index,
                           int64_t device)
    : node_(std::move(node)),
      backend_(backend),
      local_index_(local_index),
      device_(device),
      statistics_(node_->devices[local_index]),
      stream_(0),
      queue_(backend_.open_queue(local_index, node_->num_streams(), statistics_.memory)),
      pool_(statistics_.pools[0]),
      position_(node_->num_streams() == 1 ? statistics_.positions[0] : unseen_),
      parker_(std::make_shared<Parker>()),
      streams_(make_streams()) {
  if (queue_) report_device_failures();
  thread_ = std::thread([this] { loop(); });
}

KernelStream::~KernelStream() { stop(); }

void KernelStream::push(PieceRun* run) {
  {
    std::lock_guard lock(mutex_);
    pushed_.push_back(run);
  }
  available_.store(true, std::memory_order_release);
  parker_->wake();
}

void KernelStream::run_between(std::function<void()> errand) {
  {
    std::lock_guard lock(mutex_);
    errands_.push_back(std::move(errand));
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
  for (const std::unique_ptr<KernelStream>& stream : streams_) stream->stop();
  if (queue_) queue_->synchronize();
}

void KernelStream::loop() {
  auto scope = backend_.enter_thread(node_->config.threads_per_device, statistics_.memory);
  const auto accelerator_scope =
      queue_ ? queue_->accelerator().enter_thread(node_->config.threads_per_device) : nullptr;
  set_background_of_this_thread(&node_->background);
  std::vector<PieceRun*> runs;
  std::vector<std::function<void()>> errands;
  std::vector<std::unique_ptr<StreamTask>> tasks;
  for (bool stopping = false; !stopping;) {
    parker_->wait([&] { return available_.load(std::memory_order_acquire); },
                  [&] {
                    position_.idle();
                    node_->acks.flush();
                  });
    available_.store(false, std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex_);
      runs.swap(pushed_);
      errands.swap(errands_);
      tasks.swap(tasks_);
      stopping = stop_;
    }
    for (PieceRun* run : runs) {
      execute(*run);
      count_kernels();
      finish_part(run);
    }
    runs.clear();
    for (std::unique_ptr<StreamTask>& task : tasks) {
      run_task(*task);
      task.reset();
    }
    tasks.clear();
    if (!errands.empty()) wait_for_tasks();
    for (const std::function<void()>& errand : errands) errand();
    errands.clear();
  }
  tables_.clear();
  inputs_.clear();
  outputs_.clear();
}

void KernelStream::execute(PieceRun& run) noexcept {
  if (broken_) return;
  try {
    if (run.errand) wait_for_tasks();
    run.errand ? run.errand(*this, local_index_) : walk(run);
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
  table.graph = run.piece.graph;
  for (const LoweredSpec* spec : run.new_specs) {
    if (table.specs.size() <= spec->spec.id) table.specs.resize(size_t{spec->spec.id} + 1);
    table.specs[spec->spec.id] = &spec->devices[local_index_ * node_->num_streams()];
  }
  if (table.slots.size() < run.num_slots) table.slots.resize(std::max(run.num_slots, 2 * table.slots.size()));
  observe_run(run);
  if (run.replay) return replay(run, table);
  const LogicalGraph& graph = run.piece.graph_part;
  run_calls(run, {.blobs = table.slots.data(),
                  .graph = graph,
                  .operators = graph.operators,
                  .specs = table.specs.data(),
                  .specs_by_call = false,
                  .scalars = graph.scalars.data(),
                  .fused = table.fused,
                  .plans = nullptr});
  if (!run.piece.closes_graph) return;
  table = {};
  if (node_->communicators) node_->communicators->forget(run.piece.graph, device_);
}

void KernelStream::observe_run(const PieceRun& run) {
  position_.begin(run.piece.sequence);
  NodeTrace* trace = node_->trace.load(std::memory_order_acquire);
  observer_.set_trace(trace == nullptr ? nullptr : &trace->streams[local_index_ * node_->num_streams() + stream_]);
}

void KernelStream::run_calls(PieceRun& run, const CallList& list) {
  if (!streams_.empty()) return hand_out_calls(run, list);
  Call call{run, list};
  run_calls(call, list.operators.size());
}

void KernelStream::run_calls(Call& call, size_t end) {
  const CallList& list = call.list;
  const bool observed = observer_.observes(), has_graphs = list.graphs && !capture_;
  while (call.op_index < end) {
    if (has_graphs && run_as_graph(call)) continue;
    const Operator& op = list.operators[call.op_index];
    position_.at(call.number());
    call.op = &op;
    if (is_fused_with_next(op)) [[unlikely]] {
      execute_run(call);
      continue;
    }
    if (op.spec == kReleaseSpec) {
      for (OperandId id : call.inputs()) drop(call.blob(id));
    } else if (op.spec == kAliasSpec) {
      share_values(call);
    } else {
      call.spec = call.spec_of(call.op_index);
      const bool is_done = call.spec->on_memory && !observed && run_on_memory(call);
      if (!is_done) observed ? execute_observed(call) : execute_call(call);
    }
    ++call.op_index;
  }
}

void KernelStream::execute_observed(Call& call) {
  if (call.spec->action == Action::kSkip) return execute_call(call);
  observer_.begin();
  execute_call(call);
  int64_t ragged_bytes = 0;
  const std::span<const OperandId> outputs = call.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!call.spec->is_ragged_output(i)) continue;
    const NativeTensor& value = call.blob(outputs[i]).value;
    if (value) ragged_bytes += value.num_bytes();
  }
  observer_.end({call.run.piece.sequence, call.number()}, call.run.piece.graph, *call.spec, ragged_bytes);
}

void KernelStream::execute_call(Call& call) {
  switch (call.spec->action) {
    case Action::kSkip:
      release_inputs(call);
      break;
    case Action::kKernel:
      if (!call.spec->prepared || !run_prepared(call)) run_kernel(call);
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
      const std::vector<NativeTensor> expected =
          check_prepared() && !queue_ ? expected_results(call) : std::vector<NativeTensor>();
      KernelContext context(call.spec->local, {inputs_.data(), ids.size()}, outputs, call.scalars(), ids, feed);
      if (call.spec->has_effect && was_done(call)) {
        queue_ ? set_zeros_on_device(call, outputs) : set_zeros(context);
      } else if (queue_) {
        feed != nullptr ? launch_feed(call, outputs, feed) : launch_kernel(call, outputs);
        ++kernels_run_;
      } else {
        call.spec->kernel(context);
        ++kernels_run_;
      }
      check_outputs(call, outputs);
      for (NativeTensor& output : outputs) make_strides_canonical(output);
      for (size_t i = 0; i < expected.size(); ++i) require_same_result(expected[i], outputs[i]);
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

void KernelStream::run_alias(Call& call) {
  PoisonPtr poison = take_inputs(call);
  NativeTensor value;
  if (!poison) {
    try {
      if (call.spec->action == Action::kAlias)
        value = inputs_[0];
      else if (queue_)
        value = call.spec->move.run(inputs_[0], device_stream(), statistics_.memory);
      else
        value = call.spec->move.run(inputs_[0], backend_);
      check_outputs(call, {&value, 1});
      make_strides_canonical(value);
    } catch (...) {
      poison = fail(call, std::current_exception());
    }
  }
  put_back_inputs(call);
  if (poison) return poison_outputs(call, poison);
  set_value(call.blob(call.outputs()[0]), std::move(value));
}

void KernelStream::share_values(Call& call) {
  for (size_t i = 0; i < call.inputs().size(); ++i) {
    Blob& from = call.blob(call.inputs()[i]);
    Blob& to = call.blob(call.outputs()[i]);
    if (from.pending) from.pending->is_shared = true;  // nobody waits here
    to = from;
    if ((call.inputs()[i] & kLastUse) != 0) from.reset();
  }
}

void KernelStream::run_move(Call& call) {
  std::deque<PieceRun::Move>& moves = call.run.moves;
  while (moves[call.next_move].op_index != call.number()) ++call.next_move;
  PieceRun::Move& move = moves[call.next_move];
  if (call.spec->collectives) return run_collectives(call);
  if (call.spec->holds_input[0]) {
    MoveSources::Source source;
    source.poison = take_inputs(call);
    if (move.on_devices) {
      DeviceMove::Part part{{}, nullptr, source.poison};
      if (!part.poison) part = {inputs_[0], device_stream().record(), nullptr};
      put_back_inputs(call);
      move.on_devices->provide(device_, std::move(part));
    } else if (queue_ && !source.poison) {
      provide_from_queue(call, move);
      put_back_inputs(call);
    } else {
      if (!source.poison) std::copy_n(inputs_.begin(), call.inputs().size(), source.values.begin());
      put_back_inputs(call);
      PieceRun::provide(move, device_, std::move(source));
    }
  } else {
    release_inputs(call);
  }
  expect_arrivals(call);
}

// The device's results are on their way from now on.
void KernelStream::expect_arrivals(Call& call) {
  PieceRun::Move& move = call.run.moves[call.next_move];
  const std::span<const OperandId> outputs = call.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    IntrusivePtr<Arrival>& arrival = move.arrivals[local_index_ * outputs.size() + i];
    if (!arrival) continue;
    Blob& blob = call.blob(outputs[i]);
    blob.reset();
    blob.pending = std::move(arrival);
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
      if (sends && queue_)
        read_from_queue(call, scalars[0].bits);
      else if (sends)
        send_part(*node_, scalars[0].bits, inputs_[0], call.spec->local.input_boxes[0]);
    } catch (...) {
      fail(call, std::current_exception());
    }
  }
  put_back_inputs(call);
}

PoisonPtr KernelStream::fail(const Call& call, const std::exception_ptr& error) {
  std::string text = backend_.error_text(error);
  if (capture_) return refuse_capture(call, text);
  std::optional<DeviceMemory> memory;
  if (is_out_of_memory(error)) memory = memory_at(call);
  node_->report(device_, call.run.piece.sequence, call.number(), text, std::move(memory));
  return make_intrusive<Poison>(std::move(text), device_, call.run.piece.sequence, call.number());
}

DeviceMemory KernelStream::memory_at(const Call& call) const {
  std::vector<std::pair<LiveTensor, const NativeTensor*>> held;
  const OperandId kind = call.run.replay ? kNameInInstance : 0;
  // A prepared call has taken none: they are in the table.
  for (size_t i = 0; i < std::min(call.inputs().size(), inputs_.size()); ++i) {
    if (inputs_[i]) held.push_back({{call.run.piece.graph, kind | (call.inputs()[i] & kMaxOperand), 0}, &inputs_[i]});
  }
  return memory_with(held);
}

const std::byte* KernelStream::feed_of(Call& call) {
  std::deque<PieceRun::FeedUse>& feeds = call.run.feeds;
  while (call.next_feed < feeds.size() && feeds[call.next_feed].op_index < call.number()) ++call.next_feed;
  DTORCH_CHECK(call.next_feed < feeds.size() && feeds[call.next_feed].op_index == call.number(),
               "its host data hasn't arrived");
  const Bytes& bytes = *feeds[call.next_feed].bytes;
  const int64_t needed = call.spec->local.spec->outputs[0]->num_bytes();
  DTORCH_CHECK(static_cast<int64_t>(bytes.size()) >= needed,
               "its host data has " + std::to_string(bytes.size()) + " bytes, needed are " + std::to_string(needed));
  return bytes.data();
}

void KernelStream::done_with_feed(Call& call) {
  for (PieceRun::FeedUse& use : call.run.feeds) {
    if (use.op_index != call.number()) continue;
    if (use.users.fetch_sub(1, std::memory_order_acq_rel) == 1) use.bytes.reset();
  }
}

}  // namespace dtorch
