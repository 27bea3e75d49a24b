// On which of its device's compute streams a call runs. The controller chooses (passes/compute_streams.cc) and the call
// carries it, so that all nodes and all instances of a template do the same. No value depends on it.
#pragma once
#include "runtime/graph/logical_graph.h"

namespace dtorch {

inline constexpr int32_t kMaxComputeStreams = 16;
// In Operator::flags.
inline constexpr uint16_t kComputeStreamMask = kMaxComputeStreams - 1;

inline uint16_t stream_of(const Operator& op) { return op.flags & kComputeStreamMask; }
inline void set_stream(Operator& op, uint16_t stream) {
  op.flags = static_cast<uint16_t>((op.flags & ~kComputeStreamMask) | stream);
}

}  // namespace dtorch
