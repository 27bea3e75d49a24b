#include "runtime/worker/local_move.h"

#include <cstring>

namespace dtorch {

Box local_box(const Box& box, const Box& part_box) {
  Box result = box;
  for (int64_t dim = 0; dim < box.ndim(); ++dim) result.offset[dim] -= part_box.offset[dim];
  return result;
}

LocalMove::LocalMove(const RedistributePlan& plan, int64_t device, const DeviceBinding& binding) {
  for (const Stage& stage : plan.stages) {
    Step step;
    step.from = stage.from->layout.box_of(stage.from->global_shape, device);
    step.to = stage.to->layout.box_of(stage.to->global_shape, device);
    for (const PlanPiece& piece : pieces_for(stage, device, binding)) {
      if (piece.sources.empty()) continue;
      DTORCH_CHECK(piece.sources.size() == 1 && piece.sources[0] == device && stage.divisor == 1,
                   "a local plan needs other devices: " + plan.explain(binding));
      step.copies.push_back(piece.box);
    }
    steps_.push_back(std::move(step));
  }
}

NativeTensor LocalMove::run(const NativeTensor& part, DeviceBackend& backend) const {
  NativeTensor value = part;
  for (const Step& step : steps_) {
    if (step.copies.size() == 1 && step.copies[0] == step.to) {
      if (!(step.from == step.to)) value = value.narrowed(local_box(step.to, step.from));
      continue;
    }
    NativeTensor next = backend.allocate(step.to.size, value.dtype());
    if (int64_t bytes = next.num_bytes(); bytes > 0) std::memset(next.data(), 0, static_cast<size_t>(bytes));
    for (const Box& box : step.copies) copy_box(value, local_box(box, step.from), next, local_box(box, step.to));
    value = std::move(next);
  }
  return value;
}

}  // namespace dtorch
