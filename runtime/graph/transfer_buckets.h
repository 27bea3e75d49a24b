// Transfers that the pass `bucketing` has put together: a node makes one message of theirs where it would have made one
// each (runtime/comm/bucket.h). A mark on every call from the first of them to the one before the last; all transfers
// of the stretch belong together, and no call in it reads a result of theirs. A piece, a template or a replay holds
// whole stretches.
#pragma once
#include "runtime/graph/logical_graph.h"

namespace dtorch {

// In Operator::flags.
inline constexpr uint16_t kSentWithNext = 0x2000;

inline bool is_sent_with_next(const Operator& op) { return (op.flags & kSentWithNext) != 0; }

// Walks the calls of a graph in order and says which transfers belong together.
class BucketWalk {
 public:
  // Of each call. True when it is a transfer of the bucket that the last transfer before it belongs to.
  bool goes_on(const Operator& op, bool moves) {
    const bool result = moves && open_;
    open_ = is_sent_with_next(op) && (moves || open_);
    return result;
  }

 private:
  bool open_ = false;  // there was a transfer, and all calls since are marked
};

}  // namespace dtorch
