// The file of a timeline: JSON of Chrome's trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
//   process 0           rank 0: the client, an executor a Graph, the inbox; what they do as slices
//   process n + 1       node n: a thread a device, operators as slices, waiting for a transfer as a slice within one;
//                       and as many threads of transfers as overlap, the stages of each as slices
//   flows "message"     from the stage that sent it to the stage that took it
//
// Times are microseconds of rank 0's clock since the first event.
#pragma once
#include <deque>
#include <iosfwd>
#include <string>
#include <vector>

#include "runtime/base/trace_span.h"
#include "runtime/controller/clock_offsets.h"
#include "runtime/controller/trace_book.h"

namespace dtorch {

struct HostTrack {
  std::string name;
  SpanLog log;
};

struct TimelineParts {
  const std::deque<HostTrack>& host;
  const Inspection::Answers& nodes;            // with their tracks
  const std::vector<std::string>& node_names;  // "node 0 (host, process 7)"
  const ClockOffsets& clocks;
  const TraceBook& book;
};
void write_timeline(std::ostream& out, const TimelineParts& parts);

}  // namespace dtorch
