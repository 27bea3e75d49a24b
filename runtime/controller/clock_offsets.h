// How the nodes' clocks differ from rank 0's, measured by asking them what time it is, at the start of a timeline and
// at its end. Between the two an offset changes evenly.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/controller/inspection.h"

namespace dtorch {

// One measurement of one node: its clock is `offset_ns` ahead, at rank 0's time `at_ns`, give or take `error_ns`.
struct ClockOffset {
  int64_t at_ns = 0, offset_ns = 0, error_ns = INT64_MAX;
};
// Of one question and its answer. A node on this machine has offset 0, unless that is impossible (another time
// namespace).
ClockOffset clock_offset(const Answer& answer, uint64_t this_machine);

class ClockOffsets {
 public:
  explicit ClockOffsets(int32_t num_nodes);
  // Asks some times and keeps the best answer of each node. To be called twice, at the start and at the end; a node
  // that doesn't answer keeps what it has. Blocks.
  void measure(Inspection& inspection);
  void add(int32_t node, const ClockOffset& measured, bool at_end);
  // A time of a node's clock on rank 0's.
  int64_t to_rank_0(int32_t node, int64_t node_ns) const;
  // The largest error of a measurement, of those that were made.
  int64_t error_ns() const;

 private:
  struct Pair {
    ClockOffset start, end;
  };
  std::vector<Pair> nodes_;
  bool measured_ = false;
};

}  // namespace dtorch
