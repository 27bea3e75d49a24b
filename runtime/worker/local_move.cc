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

template <class MakeZeros, class Copy>
NativeTensor LocalMove::run_steps(const NativeTensor& part, MakeZeros make_zeros, Copy copy) const {
  NativeTensor value = part;
  for (const Step& step : steps_) {
    if (step.copies.size() == 1 && step.copies[0] == step.to) {
      if (!(step.from == step.to)) value = value.narrowed(local_box(step.to, step.from));
      continue;
    }
    NativeTensor next = make_zeros(step.to.size, value.dtype());
    for (const Box& box : step.copies) copy(value, local_box(box, step.from), next, local_box(box, step.to));
    value = std::move(next);
  }
  return value;
}

NativeTensor LocalMove::run(const NativeTensor& part, DeviceBackend& backend) const {
  const auto make_zeros = [&](const Shape& local_shape, DType dtype) {
    NativeTensor zeros = backend.allocate(local_shape, dtype);
    if (int64_t bytes = zeros.num_bytes(); bytes > 0) std::memset(zeros.data(), 0, static_cast<size_t>(bytes));
    return zeros;
  };
  return run_steps(part, make_zeros, copy_box);
}

NativeTensor LocalMove::run(const NativeTensor& part, DeviceStream& stream, MemoryCounter* memory) const {
  const auto make_zeros = [&](const Shape& local_shape, DType dtype) {
    NativeTensor zeros = stream.allocate(local_shape, dtype, memory);
    stream.set_zero(zeros);
    return zeros;
  };
  const auto copy = [&](const NativeTensor& from, const Box& from_box, const NativeTensor& to, const Box& to_box) {
    stream.copy(from.narrowed(from_box), to.narrowed(to_box));
  };
  return run_steps(part, make_zeros, copy);
}

}  // namespace dtorch
