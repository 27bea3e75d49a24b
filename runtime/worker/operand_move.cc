// Moves of operands (piece_run.h): between the streams of this node and the comm thread.
#include "runtime/worker/piece_run.h"

namespace dtorch {
namespace {

size_t index_in(const std::vector<int64_t>& devices, int64_t device) {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] == device) return i;
  }
  throw InternalError("device " + std::to_string(device) + " has no part in this move");
}

void settle(Arrival& arrival, NativeTensor value, const std::string& error, Sequence sequence) {
  if (error.empty()) {
    // It is this device's from now on, also while its stream is busy with something else.
    if (value && value.is_sole_owner()) charge_storage(value, arrival.memory);
    arrival.value = std::move(value);
  } else {
    arrival.poison = make_intrusive<Poison>(error, -1, sequence, 0);
  }
  arrival.event.set();
}

std::optional<TransferStatus> with_place(std::optional<TransferStatus> status, const Place& place,
                                         const MoveSources& sources) {
  status->place = place;
  if (status->phase == TransferPhase::kSources) status->waits_for = sources.awaited();
  return status;
}

void add_stage(NodeContext& node, const Place& place, uint64_t number, const StageTimes& times) {
  NodeTrace& trace = *node.trace.load(std::memory_order_acquire);
  TraceEvent event{.begin_ns = times.begin_ns,
                   .end_ns = times.end_ns,
                   .sequence = place.sequence,
                   .transfer = number,
                   .op_index = place.op_index,
                   .kind = TraceKind::kStage,
                   .stage = static_cast<uint32_t>(times.stage)};
  for (const StageTimes::Message& message : times.sent) event.bytes += message.bytes;
  trace.comm.add(event);
  const auto add = [&](TraceKind kind, const StageTimes::Message& message) {
    event.kind = kind;
    event.begin_ns = event.end_ns = message.at_ns;
    event.peer = message.node;
    event.bytes = message.bytes;
    trace.comm.add(event);
  };
  for (const StageTimes::Message& message : times.sent) add(TraceKind::kSend, message);
  for (const StageTimes::Message& message : times.received) add(TraceKind::kReceive, message);
}

}  // namespace

MoveSources::Source& MoveSources::of(int64_t device) { return sources_[index_in(devices_, device)]; }

void MoveSources::provide(int64_t device, Source source) {
  const size_t index = index_in(devices_, device);
  sources_[index] = std::move(source);
  provided_[index].store(true, std::memory_order_relaxed);
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) comm_.wake(IntrusivePtr<CommTask>(&task_));
}

std::vector<int64_t> MoveSources::awaited() const {
  std::vector<int64_t> devices;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!provided_[i].load(std::memory_order_relaxed)) devices.push_back(devices_[i]);
  }
  return devices;
}

void MoveSources::drop_values() {
  for (Source& source : sources_) {
    for (NativeTensor& value : source.values) value.reset();
  }
}

OperandTransfer::OperandTransfer(std::shared_ptr<const NodePlan> plan, uint64_t number, uint32_t op_index,
                                 std::vector<IntrusivePtr<Arrival>> arrivals, PieceRun* run)
    : Transfer(plan, run->node->config.epoch, number),
      plan_(std::move(plan)),
      node_(run->node),
      run_(run),
      place_{run->piece.sequence, op_index},
      number_(number),
      sources_(plan_->local_sources, node_->comm, *this),
      arrivals_(std::move(arrivals)) {}

OperandTransfer::~OperandTransfer() {
  sources_.drop_values();  // of a transfer that never began
  arrivals_.clear();
  run_->finish_part();
}

std::optional<TransferStatus> OperandTransfer::status() const {
  return with_place(Transfer::status(), place_, sources_);
}

// Handed over: the transfer drops it once it is packed, which is before slow receivers have taken their messages.
NativeTensor OperandTransfer::source(int64_t device) { return std::move(sources_.of(device).values[0]); }

void OperandTransfer::deliver(int64_t device, NativeTensor value, const std::string& error) {
  settle(*arrivals_[index_in(plan_->local_destinations, device)], std::move(value), error, place_.sequence);
}

void OperandTransfer::charge(int64_t device, const NativeTensor& value) {
  charge_storage(value, arrivals_[index_in(plan_->local_destinations, device)]->memory);
}

void OperandTransfer::on_stage(const StageTimes& times) { add_stage(*node_, place_, number_, times); }

OperandExchange::OperandExchange(std::shared_ptr<const RowExchangePlan> plan, uint64_t number, uint32_t op_index,
                                 std::vector<IntrusivePtr<Arrival>> arrivals, PieceRun* run)
    : RowExchange(plan, run->node->config.epoch, number),
      plan_(std::move(plan)),
      node_(run->node),
      run_(run),
      place_{run->piece.sequence, op_index},
      number_(number),
      sources_(plan_->local_devices, node_->comm, *this),
      arrivals_(std::move(arrivals)) {}

OperandExchange::~OperandExchange() {
  sources_.drop_values();  // as above
  arrivals_.clear();
  run_->finish_part();
}

std::optional<TransferStatus> OperandExchange::status() const {
  return with_place(RowExchange::status(), place_, sources_);
}

RowExchange::Part OperandExchange::source(int64_t device) {
  MoveSources::Source& source = sources_.of(device);
  return {std::move(source.values[0]), std::move(source.values[1]), source.error()};
}

void OperandExchange::deliver(int64_t device, Part part) {
  const size_t first = 2 * index_in(plan_->local_devices, device);
  arrivals_[first]->is_ragged = true;
  arrivals_[first]->moved_bytes = part.moved_bytes;
  settle(*arrivals_[first], std::move(part.rows), part.error, place_.sequence);
  settle(*arrivals_[first + 1], std::move(part.counts), part.error, place_.sequence);
}

void OperandExchange::on_round(const StageTimes& times) { add_stage(*node_, place_, number_, times); }

}  // namespace dtorch
