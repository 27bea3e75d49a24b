// What belongs to a client thread: its current Graph and the scopes that are open on it. Private to this room.
#pragma once
#include "mesh/signature.h"
#include "runtime/base/error.h"

namespace dtorch {

class GraphCore;

// No ConversionScope is open: set_implicit_redistribution decides.
inline constexpr auto kPolicyOfClient = static_cast<ConversionPolicy>(0xFF);

struct ThreadState {
  GraphCore* graph = nullptr;
  SourceLine source;              // of the outermost SourceScope
  bool has_source = false;
  bool grad_enabled = true;
  ConversionPolicy policy = kPolicyOfClient;
};
extern constinit thread_local ThreadState thread_state;

}  // namespace dtorch
