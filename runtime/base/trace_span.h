// TraceSpan: notes what a thread of rank 0 does in a scope, when the thread keeps a log for a timeline (--trace); else
// a branch.
#pragma once
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/event_log.h"

namespace dtorch {

struct SpanEvent {
  int64_t begin_ns = 0, end_ns = 0;
  const char* name = "";  // static storage, as where.file
  int64_t number = -1;    // of what is done, -1: none
  SourceLine where = {};
};

// One thread's spans, in the order of their ends.
class SpanLog {
 public:
  // The thread.
  void begin(const char* name, const SourceLine& where) {
    open_.push_back({.begin_ns = trace_clock_ns(), .name = name, .where = where});
  }
  void set_number(int64_t number) { open_.back().number = number; }
  void end() {
    SpanEvent event = open_.back();
    open_.pop_back();
    event.end_ns = trace_clock_ns();
    events_.add(event);
  }
  // Any thread.
  const EventLog<SpanEvent>& events() const { return events_; }

 private:
  std::vector<SpanEvent> open_;
  EventLog<SpanEvent> events_;
};

// The calling thread's log, or null.
inline constinit thread_local SpanLog* thread_span_log = nullptr;

class TraceSpan {
 public:
  explicit TraceSpan(const char* name, const SourceLine& where = {}) : log_(thread_span_log) {
    if (log_ != nullptr) [[unlikely]]
      log_->begin(name, where);
  }
  ~TraceSpan() {
    if (log_ != nullptr) [[unlikely]]
      log_->end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  void set_number(int64_t number) {
    if (log_ != nullptr) log_->set_number(number);
  }

 private:
  SpanLog* const log_;
};

}  // namespace dtorch
