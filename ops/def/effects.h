// Operators with effects outside (OperatorClass::kEffect) when work is done once more after a node was lost
// (docs/reliability.md). A call that has had its effect isn't run again; its outputs, if it has any, are zeros then, so
// they must always be zeros.
//
// An effect has been had when all nodes have acknowledged the call's piece. Some need several calls, and go on when
// these have returned: the operators of such a session are listed here. The first scalar of their calls is the
// session's number (next_host_data_number()), that of the read by which the program learns that the session has ended,
// in whatever way; that read must be recorded for every session. Until it has been answered all of the session's calls
// are run again.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

#include "ops/def/native_tensor.h"
#include "ops/def/operator_def.h"

namespace dtorch {

// Where operators are registered. Keeps a pointer to `def`.
void add_session_operator(const OperatorDef& def);
bool is_session_operator(const OperatorDef& def);

// Sets all of a call's results to zeros.
inline void set_zeros(KernelContext& context) {
  for (size_t i = 0; i < context.num_outputs(); ++i) {
    NativeTensor zeros = NativeTensor::empty(context.output_box(i).size, context.output_meta(i).dtype);
    if (const int64_t bytes = zeros.num_bytes(); bytes > 0) std::memset(zeros.data(), 0, static_cast<size_t>(bytes));
    context.output(i) = std::move(zeros);
  }
}

// The number of the effects of a piece, beside those of sessions.
inline uint64_t effects_of_piece(uint64_t sequence) { return sequence | (uint64_t{1} << 63); }

}  // namespace dtorch
