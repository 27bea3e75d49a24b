// One operator of a piece, on one device. Private to KernelStream's files.
#pragma once
#include <span>

#include "runtime/graph/fused_runs.h"
#include "runtime/worker/kernel_stream.h"

namespace dtorch {

struct KernelStream::Call {
  PieceRun& run;
  const CallList& list;
  const Operator* op = nullptr;
  uint32_t op_index = 0;  // among the list's
  const LocalSpec* spec = nullptr;
  size_t next_move = 0, next_feed = 0;  // cursors into the run's lists

  uint32_t number() const { return list.first_number + op_index; }  // in the piece or replay
  std::span<const OperandId> inputs() const { return list.graph.inputs(*op); }
  std::span<const OperandId> outputs() const { return list.graph.outputs(*op); }
  std::span<const Scalar> scalars() const { return {list.scalars + op->first_scalar, op->num_scalars}; }
  Blob& blob(OperandId id) const { return list.blobs[id & kMaxOperand]; }
  const LocalSpec* spec_of(size_t index) const {
    return list.specs[list.specs_by_call ? index : list.operators[index].spec];
  }
  // To the call with this number, which is an operator's.
  void go_to(uint32_t index) {
    op_index = index;
    op = &list.operators[index];
    spec = spec_of(index);
  }
};

}  // namespace dtorch
