// For a timeline: when the messages of a stage of a transfer, or of a round of an exchange, went and came.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/event_log.h"

namespace dtorch {

struct StageTimes {
  struct Message {
    int32_t node = 0;
    int64_t bytes = 0;
    int64_t at_ns = 0;  // handed over, or found to have arrived
  };
  size_t stage = 0;
  int64_t begin_ns = 0, end_ns = 0;  // from the first message to the results
  std::vector<Message> sent, received;

  bool has_messages() const { return !sent.empty() || !received.empty(); }
  void note_sent(int32_t node, size_t bytes) { note(sent, node, bytes); }
  void note_received(int32_t node, size_t bytes) { note(received, node, bytes); }
  // A stage without messages takes no time.
  void end() {
    end_ns = trace_clock_ns();
    if (begin_ns == 0) begin_ns = end_ns;
  }

 private:
  void note(std::vector<Message>& list, int32_t node, size_t bytes) {
    const int64_t now = trace_clock_ns();
    if (begin_ns == 0) begin_ns = now;
    list.push_back({node, static_cast<int64_t>(bytes), now});
  }
};

}  // namespace dtorch
