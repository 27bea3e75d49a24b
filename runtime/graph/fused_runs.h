// Runs of elementwise operators that the pass `fusion` has found: calls that follow each other, of which a node may
// make one. A run is a mark on its calls and nothing else: they keep their specs, operands, scalars and numbers, so
// that it means what its calls mean one by one, an error names the call, and a node that can't fuse runs them singly.
// A piece, a template or a replay holds whole runs.
#pragma once
#include <cstddef>
#include <span>

#include "runtime/graph/logical_graph.h"

namespace dtorch {

// In Operator::flags of every call of a run but the last. Calls of a run have one output.
inline constexpr uint16_t kFusedWithNext = 0x4000;

inline bool is_fused_with_next(const Operator& op) { return (op.flags & kFusedWithNext) != 0; }

// How many calls the run that begins with `first` has; 1 when it stands alone.
inline size_t fused_run_length(std::span<const Operator> operators, size_t first) {
  size_t end = first;
  while (end + 1 < operators.size() && is_fused_with_next(operators[end])) ++end;
  return end - first + 1;
}

}  // namespace dtorch
