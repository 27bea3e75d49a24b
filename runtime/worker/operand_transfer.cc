// OperandTransfer (piece_run.h): between the streams of this node and the comm thread.
#include "runtime/worker/piece_run.h"

namespace dtorch {

OperandTransfer::OperandTransfer(std::shared_ptr<const NodePlan> plan, uint64_t number,
                                 std::vector<IntrusivePtr<Arrival>> arrivals, PieceRun* run)
    : Transfer(plan, run->node->config.epoch, number),
      plan_(std::move(plan)),
      node_(run->node),
      run_(run),
      sequence_(run->piece.sequence),
      sources_(plan_->local_sources.size()),
      arrivals_(std::move(arrivals)),
      missing_(static_cast<int64_t>(plan_->local_sources.size())) {}

OperandTransfer::~OperandTransfer() {
  for (Source& source : sources_) source.value.reset();  // of a transfer that never began
  run_->finish_part();
}

OperandTransfer::Source& OperandTransfer::source_of(int64_t device) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (plan_->local_sources[i] == device) return sources_[i];
  }
  throw InternalError("device " + std::to_string(device) + " is no source of this transfer");
}

void OperandTransfer::provide(int64_t device, NativeTensor value, PoisonPtr poison) {
  Source& source = source_of(device);
  source.value = std::move(value);
  source.poison = std::move(poison);
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) node_->comm.notify();
}

// Handed over: the transfer drops it once it is packed, which is before slow receivers have taken their messages.
NativeTensor OperandTransfer::source(int64_t device) { return std::move(source_of(device).value); }

std::string OperandTransfer::source_error(int64_t device) {
  const Source& source = source_of(device);
  return source.poison ? source.poison->message : std::string();
}

void OperandTransfer::deliver(int64_t device, NativeTensor value, const std::string& error) {
  for (size_t i = 0; i < arrivals_.size(); ++i) {
    if (plan_->local_destinations[i] != device) continue;
    Arrival& arrival = *arrivals_[i];
    if (error.empty()) {
      // It is this device's from now on, also while its stream is busy with something else.
      if (value && value.is_sole_owner()) charge_storage(value, arrival.memory);
      arrival.value = std::move(value);
    } else {
      arrival.poison = make_intrusive<Poison>(error, -1, sequence_, 0);
    }
    arrival.event.set();
    return;
  }
  throw InternalError("device " + std::to_string(device) + " is no destination of this transfer");
}

}  // namespace dtorch
