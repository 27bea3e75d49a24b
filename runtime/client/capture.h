// CapturedFunction: a function of the user's program that promises to record the same calls every time it runs.
// Repeated stretches are found without it; it is for users who want to be sure, and to be told where a repetition
// differs. Used by the user thread of the Graph that was current when the function was captured.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

#include "runtime/client/tensor.h"

namespace dtorch {

// Told of every record of a Graph before it is written; what it throws leaves the call unrecorded.
struct RecordContent;
class RecordObserver {
 public:
  virtual ~RecordObserver() = default;
  virtual void before_record(const RecordContent& record) = 0;
};

// Copies share everything.
class CapturedFunction {
 public:
  explicit CapturedFunction(std::function<void()> function);
  // Runs the function; its calls are a subgraph of their own, so that the third run is replayed. From the second run on
  // every call must be what it was in the first: operator, attributes, shapes, dtypes, layouts, source line, and where
  // each input comes from. Scalars and random numbers may differ. Throws UserError at the first call that differs, with
  // both source lines, and when a run ends early; what was recorded until then stays recorded. What the function throws
  // passes through.
  void operator()(Where where = Where::current());
  // Calls of one run; 0 before the first.
  size_t num_calls() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dtorch
