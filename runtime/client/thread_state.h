// What belongs to a client thread: its current Graph and the scopes that are open on it. Private to this room and
// runtime/autograd.
#pragma once
#include "mesh/signature.h"
#include "runtime/base/error.h"

namespace dtorch {

class GraphCore;
class RecordObserver;

// No ConversionScope is open: set_implicit_redistribution decides.
inline constexpr auto kPolicyOfClient = static_cast<ConversionPolicy>(0xFF);

struct ThreadState {
  GraphCore* graph = nullptr;
  SourceLine source;  // of the outermost SourceScope
  bool has_source = false;
  bool grad_enabled = true;
  bool checks_replicas = false;  // inside check_replicas
  ConversionPolicy policy = kPolicyOfClient;
  // Told of what is recorded into `observed` (capture.h); null: nobody.
  RecordObserver* observer = nullptr;
  const GraphCore* observed = nullptr;
};
extern constinit thread_local ThreadState thread_state;

// In its scope operators report `line`, whatever SourceScope is open: gradients report the line of the operator that
// they belong to.
class SourceLineScope {
 public:
  explicit SourceLineScope(const SourceLine& line)
      : before_(thread_state.source), had_source_(thread_state.has_source) {
    thread_state.source = line;
    thread_state.has_source = true;
  }
  ~SourceLineScope() {
    thread_state.source = before_;
    thread_state.has_source = had_source_;
  }
  SourceLineScope(const SourceLineScope&) = delete;
  SourceLineScope& operator=(const SourceLineScope&) = delete;

 private:
  const SourceLine before_;
  const bool had_source_;
};

}  // namespace dtorch
