#include "runtime/worker/device_move.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/worker/piece_run.h"

namespace dtorch {
namespace {

bool is_all_of(const Box& box, const NativeTensor& value) { return box == whole(value.local_shape()); }

// One destination's work of one stage.
struct Builder {
  using Parts = std::map<int64_t, DeviceMove::Part>;
  const Stage& what;
  const Parts& parts;
  DeviceStream& stream;
  MemoryCounter* memory;
  NativeTensor result;
  std::vector<NativeTensor> used;

  NativeTensor source_of(const NodePlan::LocalPiece& piece, size_t i) {
    const NativeTensor& value = parts.at(piece.sources[i]).value;
    used.push_back(value);
    return is_all_of(piece.parts[i].source_box, value) ? value : value.narrowed(piece.parts[i].source_box);
  }

  // Folds read contiguous memory.
  NativeTensor packed(const NativeTensor& value) {
    if (value.is_contiguous()) return value;
    NativeTensor copy = stream.allocate(value.local_shape(), value.dtype(), memory);
    stream.copy(value, copy);
    return copy;
  }

  void build(const NodePlan::LocalPiece& piece) {
    const NativeTensor target = is_all_of(piece.local_box, result) ? result : result.narrowed(piece.local_box);
    if (piece.parts.empty()) return stream.set_zero(target);
    if (piece.parts.size() == 1 && what.divisor == 1) return stream.copy(source_of(piece, 0), target);
    std::vector<NativeTensor> sources;
    for (size_t i = 0; i < piece.parts.size(); ++i) sources.push_back(packed(source_of(piece, i)));
    if (target.is_contiguous()) return stream.fold(sources, what.reduce, what.divisor, target);
    const NativeTensor folded = stream.allocate(target.local_shape(), target.dtype(), memory);
    stream.fold(sources, what.reduce, what.divisor, folded);
    stream.copy(folded, target);
  }
};

}  // namespace

bool DeviceMove::is_within_node(const NodePlan& plan) {
  const auto is_here = [&](const NodePlan::NodeStage& stage) {
    const auto has_all = [](const TensorMeta& meta, size_t num_here) {
      return meta.layout.mesh().num_devices() == static_cast<int64_t>(num_here);
    };
    return stage.sends.empty() && stage.receives.empty() && has_all(*stage.stage.to, stage.destinations.size());
  };
  return plan.stages.front().stage.from->layout.mesh().num_devices() ==
             static_cast<int64_t>(plan.local_sources.size()) &&
         std::ranges::all_of(plan.stages, is_here);
}

DeviceMove::DeviceMove(std::shared_ptr<const NodePlan> plan, uint32_t op_index, Queues queues,
                       std::vector<IntrusivePtr<Arrival>> arrivals, PieceRun* run)
    : plan_(std::move(plan)),
      place_{run->piece.sequence, op_index},
      queues_(std::move(queues)),
      arrivals_(std::move(arrivals)),
      run_(run),
      missing_(static_cast<int64_t>(plan_->local_sources.size())) {
  for (int64_t device : plan_->local_sources) parts_[device];
}

void DeviceMove::provide(int64_t device, Part part) {
  parts_.at(device) = std::move(part);
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) run_stages();
}

void DeviceMove::run_stages() noexcept {
  for (const NodePlan::NodeStage& stage : plan_->stages) {
    std::map<int64_t, Part> built;
    for (const NodePlan::Destination& destination : stage.destinations)
      built[destination.device] = build(stage, destination);
    parts_ = std::move(built);
  }
  for (auto& [device, part] : parts_) deliver(device, std::move(part));
  parts_.clear();
  run_->finish_part();
}

DeviceMove::Part DeviceMove::build(const NodePlan::NodeStage& stage, const NodePlan::Destination& destination) const {
  const std::span pieces = std::span(stage.pieces).subspan(destination.first_piece, destination.num_pieces);
  for (const NodePlan::LocalPiece& piece : pieces) {
    for (int64_t source : piece.sources) {
      if (parts_.at(source).poison) return {{}, nullptr, parts_.at(source).poison};
    }
  }
  // Values never change (D1), so what stays on its device isn't copied.
  if (pieces.size() == 1 && pieces[0].parts.size() == 1 && pieces[0].sources[0] == destination.device &&
      stage.stage.divisor == 1) {
    const Part& own = parts_.at(destination.device);
    if (own.value.is_contiguous() && is_all_of(pieces[0].parts[0].source_box, own.value)) return own;
  }
  DeviceQueue& queue = *queues_.at(destination.device);
  try {
    return queue.communicate([&](DeviceStream& stream) -> Part {
      stream.mark({place_.sequence, place_.op_index});
      for (const NodePlan::LocalPiece& piece : pieces) {
        for (int64_t source : piece.sources) stream.wait(parts_.at(source).made);
      }
      Builder builder{stage.stage, parts_, stream, queue.memory(), {}, {}};
      builder.result = stream.allocate(destination.local_shape, stage.stage.to->dtype, queue.memory());
      for (const NodePlan::LocalPiece& piece : pieces) builder.build(piece);
      stream.keep(std::move(builder.used));
      return {std::move(builder.result), stream.record(), nullptr};
    });
  } catch (const std::exception& error) {
    run_->node->report(destination.device, place_.sequence, place_.op_index, error.what());
    return {{}, nullptr, make_intrusive<Poison>(error.what(), destination.device, place_.sequence, place_.op_index)};
  }
}

void DeviceMove::deliver(int64_t device, Part part) {
  const auto at = std::ranges::find(plan_->local_destinations, device) - plan_->local_destinations.begin();
  Arrival& arrival = *arrivals_[static_cast<size_t>(at)];
  if (part.value) {
    run_->parts.fetch_add(1, std::memory_order_relaxed);
    queues_.at(device)->communicate(
        [&](DeviceStream& stream) { stream.call_on_host([run = run_] { run->finish_part(); }); });
  }
  arrival.value = std::move(part.value);
  arrival.ready = std::move(part.made);
  arrival.poison = std::move(part.poison);
  arrival.event.set();
}

}  // namespace dtorch
