#include "runtime/controller/clock_offsets.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/base/machine.h"

namespace dtorch {

namespace {

// The first questions wake threads that sleep, so that the best of some answers is much better than one.
constexpr int kRounds = 8;
constexpr auto kPatience = std::chrono::seconds(1);

}  // namespace

ClockOffset clock_offset(const Answer& answer, uint64_t this_machine) {
  ClockOffset measured;
  measured.error_ns = (answer.received_ns - answer.asked_ns) / 2;
  measured.at_ns = answer.asked_ns + measured.error_ns;
  measured.offset_ns = answer.clock_ns - measured.at_ns;
  const bool same_machine = this_machine != 0 && answer.machine == this_machine;
  if (same_machine && std::abs(measured.offset_ns) <= measured.error_ns + 1) measured.offset_ns = measured.error_ns = 0;
  return measured;
}

ClockOffsets::ClockOffsets(int32_t num_nodes) : nodes_(static_cast<size_t>(num_nodes)) {}

void ClockOffsets::measure(Inspection& inspection) {
  const bool at_end = measured_;
  measured_ = true;
  for (int round = 0; round < kRounds; ++round) {
    const Inspection::Answers answers = inspection.ask(Aspect::kClock, kPatience);
    bool all = true;
    for (const std::optional<Answer>& answer : answers) {
      all = all && answer;
      if (answer) add(answer->node, clock_offset(*answer, machine_number()), at_end);
    }
    if (!all) return;  // it won't get better, and each round would wait
  }
}

void ClockOffsets::add(int32_t node, const ClockOffset& measured, bool at_end) {
  Pair& pair = nodes_.at(static_cast<size_t>(node));
  ClockOffset& kept = at_end ? pair.end : pair.start;
  if (measured.error_ns < kept.error_ns) kept = measured;
}

int64_t ClockOffsets::to_rank_0(int32_t node, int64_t node_ns) const {
  const auto& [start, end] = nodes_.at(static_cast<size_t>(node));
  const bool has_start = start.error_ns != INT64_MAX, has_end = end.error_ns != INT64_MAX;
  if (!has_end || end.at_ns <= start.at_ns) return node_ns - (has_start ? start.offset_ns : 0);
  if (!has_start) return node_ns - end.offset_ns;
  const double share =
      static_cast<double>(node_ns - start.offset_ns - start.at_ns) / static_cast<double>(end.at_ns - start.at_ns);
  const double change = static_cast<double>(end.offset_ns - start.offset_ns) * std::clamp(share, 0.0, 1.0);
  return node_ns - start.offset_ns - static_cast<int64_t>(change);
}

int64_t ClockOffsets::error_ns() const {
  int64_t largest = 0;
  for (const auto& [start, end] : nodes_) {
    for (int64_t error : {start.error_ns, end.error_ns}) {
      if (error != INT64_MAX) largest = std::max(largest, error);
    }
  }
  return largest;
}

}  // namespace dtorch
