// StreamObserver: what a stream notes about its operators while somebody wants to know: events for a timeline, sums for
// a profile. The stream's thread.
#pragma once
#include <optional>
#include <span>
#include <unordered_map>

#include "runtime/base/event_log.h"
#include "runtime/worker/blob.h"
#include "runtime/worker/lowered_spec.h"

namespace dtorch {

class StreamObserver {
 public:
  void set_trace(EventLog<TraceEvent>* log) { trace_ = log; }
  void start_profile();
  DeviceProfile profile(int64_t device) const;  // since start_profile; empty without
  bool observes() const { return trace_ != nullptr || profile_; }

  void begin() {
    begin_ns_ = trace_clock_ns();
    waited_ns_ = 0;
  }
  // The device's part of a call has run since begin(). ragged_bytes: of its ragged results that are there.
  void end(const Place& place, GraphId graph, const LocalSpec& spec, int64_t ragged_bytes);
  // The same of calls that ran as one kernel: one event at the first's place, their time in equal parts. outputs: of
  // the calls that have memory of their own.
  void end_run(const Place& first, GraphId graph, std::span<const LocalSpec* const> calls,
               std::span<const LocalSpec* const> outputs);
  void begin_wait() { wait_begin_ns_ = trace_clock_ns(); }
  // The stream has waited since begin_wait(), within a call.
  void end_wait(GraphId graph, const Arrival& arrival);
  // Ragged rows that an exchange has delivered are there.
  void take_rows(GraphId graph, const Arrival& arrival);

 private:
  struct Profile {
    Profile() : begin_ns(trace_clock_ns()) {}
    const int64_t begin_ns;
    std::unordered_map<uint64_t, ProfileRow> rows;  // by graph and spec
    ProfileRow& row(GraphId graph, uint32_t spec);
  };
  EventLog<TraceEvent>* trace_ = nullptr;
  std::optional<Profile> profile_;
  int64_t begin_ns_ = 0, wait_begin_ns_ = 0, waited_ns_ = 0;
};

}  // namespace dtorch
