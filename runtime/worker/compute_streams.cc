// KernelStream on a device with several compute streams: the walking thread and what runs the calls.
//
// Only the walking thread touches operand tables; it never waits for a value. What a task holds are handles, so that
// slots may be used again while tasks that read the old value still run, and memory is taken over only where a task's
// handle is the last one. Where a task needs what another stream, or a transfer, makes, it waits for the value's
// Arrival; that is the event between streams. No circle can form: a task waits for earlier ones only, and every stream
// runs its tasks in order.
#include <algorithm>

#include "runtime/graph/compute_streams.h"
#include "runtime/worker/kernel_stream_call.h"
#include "runtime/worker/stream_task.h"

namespace dtorch {

std::vector<std::unique_ptr<KernelStream>> KernelStream::make_streams() const {
  std::vector<std::unique_ptr<KernelStream>> streams;
  if (node_->num_streams() == 1) return streams;
  for (size_t stream = 0; stream < node_->num_streams(); ++stream)
    streams.emplace_back(new KernelStream(*this, stream));
  return streams;
}

// --- the walking thread
// ---------------------------------------------------------------------------------------------------------------------

void KernelStream::hand_out_calls(PieceRun& run, const CallList& list) {
  Call call{run, list};
  while (call.op_index < list.operators.size()) {
    const Operator& op = list.operators[call.op_index];
    call.op = &op;
    if (op.spec == kReleaseSpec) {
      for (OperandId id : call.inputs()) drop(call.blob(id));
    } else if (op.spec == kAliasSpec) {
      share_values(call);
    } else {
      call.spec = call.spec_of(call.op_index);
      const bool runs_here = call.spec->action == Action::kSkip;
      const size_t num_calls = runs_here ? 1 : fused_run_length(list.operators, call.op_index);
      runs_here ? release_inputs(call) : hand_out(call, num_calls);
      call.op_index += static_cast<uint32_t>(num_calls);
      continue;
    }
    ++call.op_index;
  }
  if (!run.piece.closes_graph) return;
  for (size_t stream = 0; stream < streams_.size(); ++stream) {
    auto task = std::make_unique<StreamTask>();
    task->run = &run;
    task->forgets_graph = true;
    push_task(stream, std::move(task));
  }
}

void KernelStream::hand_out(Call& call, size_t num_calls) {
  const std::deque<PieceRun::Move>& moves = call.run.moves;
  const std::deque<PieceRun::FeedUse>& feeds = call.run.feeds;
  while (call.next_move < moves.size() && moves[call.next_move].op_index < call.number()) ++call.next_move;
  while (call.next_feed < feeds.size() && feeds[call.next_feed].op_index < call.number()) ++call.next_feed;
  const bool moves_data = call.spec->action == Action::kMove;
  if (moves_data && call.spec->collectives) return run_collectives(call);  // in one order on all devices
  if (moves_data && !call.spec->holds_input[0]) {
    release_inputs(call);
    return expect_arrivals(call);
  }
  const size_t stream = stream_of(*call.op);
  auto task = std::make_unique<StreamTask>();
  task->run = &call.run;
  task->graph = &call.list.graph;
  task->operators = call.list.operators.subspan(call.op_index, num_calls);
  // The device's specs lie in order of the streams.
  for (size_t i = 0; i < num_calls; ++i) task->specs.push_back(call.spec_of(call.op_index + i) + stream);
  task->scalars = call.list.scalars;
  task->plans = call.list.plans == nullptr ? nullptr : call.list.plans + call.op_index;
  task->first_number = call.number();
  task->next_move = call.next_move;
  task->next_feed = call.next_feed;
  take_inputs_of(*task, call);
  // Its inputs are with the task now; what it makes may get their slots.
  moves_data ? expect_arrivals(call) : expect_outputs_of(*task, call);
  push_task(stream, std::move(task));
}

void KernelStream::take_inputs_of(StreamTask& task, const Call& call) {
  made_.clear();
  for (size_t i = 0; i < task.operators.size(); ++i) {
    const Operator& op = task.operators[i];
    for (OperandId id : call.list.graph.inputs(op)) {
      const OperandId slot = id & kMaxOperand;
      const bool dies = (id & kLastUse) != 0;
      if (made_.get(slot) != SlotMap::kNone) {
        if (dies) made_.erase(slot);
        continue;
      }
      Blob& blob = call.blob(slot);
      if (blob.is_empty()) continue;  // of other devices, or taken by an earlier input
      task.inputs.push_back({slot, blob});
      task.num_places = std::max(task.num_places, size_t{slot} + 1);
      if (dies) blob.reset();
    }
    for (OperandId slot : call.list.graph.outputs(op)) {
      made_.set(slot, static_cast<uint32_t>(i));
      task.num_places = std::max(task.num_places, size_t{slot} + 1);
    }
  }
}

void KernelStream::expect_outputs_of(StreamTask& task, const Call& call) {
  for (size_t i = 0; i < task.operators.size(); ++i) {
    for (OperandId slot : call.list.graph.outputs(task.operators[i])) {
      if (made_.get(slot) != i) continue;  // it dies within the task
      const Place place{call.run.piece.sequence, call.number() + static_cast<uint32_t>(i)};
      task.outputs.push_back(
          {slot, make_intrusive<Arrival>(parker_, *statistics_.memory, place, task.operators[i].spec)});
    }
  }
  for (const StreamTask::Output& output : task.outputs) {
    Blob& blob = call.blob(output.slot);
    blob.reset();
    blob.pending = output.arrival;
  }
}

void KernelStream::push_task(size_t stream, std::unique_ptr<StreamTask> task) {
  KernelStream& to = *streams_[stream];
  task->run->parts.fetch_add(1, std::memory_order_relaxed);
  to.tasks_left_.fetch_add(1, std::memory_order_relaxed);
  {
    std::lock_guard lock(to.mutex_);
    to.tasks_.push_back(std::move(task));
  }
  to.available_.store(true, std::memory_order_release);
  parker_->wake();
}

void KernelStream::wait_for_tasks() {
  const auto is_done = [](const std::unique_ptr<KernelStream>& stream) {
    return stream->tasks_left_.load(std::memory_order_acquire) == 0;
  };
  parker_->wait([&] { return std::ranges::all_of(streams_, is_done); }, [] {});
}

void KernelStream::start_profile() {
  observer_.start_profile();
  for (const std::unique_ptr<KernelStream>& stream : streams_) stream->observer_.start_profile();
}

DeviceProfile KernelStream::profile() const {
  DeviceProfile all = observer_.profile(device_);
  for (const std::unique_ptr<KernelStream>& stream : streams_) {
    for (const ProfileRow& row : stream->observer_.profile(device_).rows) {
      const auto same = std::ranges::find_if(
          all.rows, [&](const ProfileRow& r) { return r.graph == row.graph && r.spec == row.spec; });
      if (same == all.rows.end()) {
        all.rows.push_back(row);
        continue;
      }
      same->calls += row.calls;
      same->run_ns += row.run_ns;
      same->wait_ns += row.wait_ns;
      same->bytes += row.bytes;
      same->moved_bytes += row.moved_bytes;
    }
  }
  return all;
}

// --- a compute stream
// -----------------------------------------------------------------------------------------------------------------------

KernelStream::KernelStream(const KernelStream& walker, size_t stream)
    : node_(walker.node_),
      backend_(walker.backend_),
      local_index_(walker.local_index_),
      device_(walker.device_),
      statistics_(walker.statistics_),
      stream_(stream),
      queue_(walker.queue_),
      pool_(statistics_.pools[stream]),
      position_(statistics_.positions[stream]),
      parker_(walker.parker_),
      is_one_of_several_(true),
      thread_([this] { loop(); }) {}

void KernelStream::run_task(StreamTask& task) noexcept {
  PieceRun& run = *task.run;
  try {
    if (plans_.size() <= run.graph) plans_.resize(run.graph + 1);
    if (task.forgets_graph) plans_[run.graph] = {};
    if (!task.forgets_graph && !broken_) {
      observe_run(run);
      if (places_.size() < task.num_places) places_.resize(std::max(task.num_places, 2 * places_.size()));
      for (StreamTask::Input& input : task.inputs) places_[input.slot] = std::move(input.blob);
      const CallList list{.blobs = places_.data(),
                          .graph = *task.graph,
                          .operators = task.operators,
                          .specs = task.specs.data(),
                          .specs_by_call = true,
                          .scalars = task.scalars,
                          .fused = plans_[run.graph],
                          .plans = task.plans,
                          .first_number = task.first_number};
      Call call{run, list};
      call.next_move = task.next_move;
      call.next_feed = task.next_feed;
      run_calls(call, list.operators.size());
    }
  } catch (...) {
    broken_ = true;
    node_->report(-1, run.piece.sequence, 0,
                  "device " + std::to_string(device_) + ": " + backend_.error_text(std::current_exception()));
  }
  deliver_outputs(task);
  count_kernels();
  finish_part(&run);
  tasks_left_.fetch_sub(1, std::memory_order_release);
  parker_->wake();
}

// No handle is left here afterwards.
void KernelStream::deliver_outputs(StreamTask& task) {
  const DeviceEventPtr ready = queue_ && !task.outputs.empty() ? device_stream().record() : nullptr;
  for (StreamTask::Output& output : task.outputs) {
    Arrival& arrival = *output.arrival;
    Blob* const made = output.slot < places_.size() ? &places_[output.slot] : nullptr;
    if (made != nullptr && made->value) {
      arrival.value = std::move(made->value);
      arrival.ready = ready;
    } else {
      arrival.poison = made != nullptr && made->poison
                           ? made->poison
                           : make_intrusive<Poison>("its device can't go on", device_, task.run->piece.sequence, 0);
    }
    if (made != nullptr) made->reset();
    arrival.event.set();
  }
  task.outputs.clear();
  for (StreamTask::Input& input : task.inputs) {
    if (input.slot < places_.size()) places_[input.slot].reset();
  }
  task.inputs.clear();
}

}  // namespace dtorch
