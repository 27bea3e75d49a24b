// The scopes of a client thread, and the parts of Graph that are one line.
#include "runtime/client/client.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/thread_state.h"

namespace dtorch {

constinit thread_local ThreadState thread_state;

GraphScope::GraphScope(const Graph& graph) : keep_(graph.core_ptr()), before_(thread_state.graph) {
  if (!keep_) throw UserError("[GraphScope] the Graph is empty");
  thread_state.graph = keep_.get();
}
GraphScope::~GraphScope() { thread_state.graph = before_; }

GraphCore& current_graph() {
  if (!thread_state.graph) {
    throw GraphError(
        "no Graph is current on this thread: call this inside the function given to dtorch::run, or open a GraphScope");
  }
  return *thread_state.graph;
}

SourceScope::SourceScope(const Where& where) : set_(!thread_state.has_source) {
  if (!set_) return;
  thread_state.source = SourceLine::from(where);
  thread_state.has_source = true;
}
SourceScope::~SourceScope() {
  if (set_) thread_state.has_source = false;
}

ConversionScope::ConversionScope(ConversionPolicy policy) : before_(thread_state.policy) {
  thread_state.policy = policy;
}
ConversionScope::~ConversionScope() { thread_state.policy = before_; }

bool implicit_redistribution_allowed() { return conversion_policy(current_graph()) != ConversionPolicy::kNone; }

NoGrad::NoGrad() : before_(thread_state.grad_enabled) { thread_state.grad_enabled = false; }
NoGrad::~NoGrad() { thread_state.grad_enabled = before_; }
EnableGrad::EnableGrad() : before_(thread_state.grad_enabled) { thread_state.grad_enabled = true; }
EnableGrad::~EnableGrad() { thread_state.grad_enabled = before_; }
bool grad_enabled() { return thread_state.grad_enabled; }

GraphId Graph::id() const { return core_->id(); }
void Graph::manual_seed(uint64_t seed) { core_->set_random_state({seed, 0}); }
RandomState Graph::random_state() const { return core_->random_state(); }
void Graph::set_random_state(const RandomState& state) { core_->set_random_state(state); }
void Graph::flush() { core_->flush(); }

void manual_seed(uint64_t seed) { current_graph().set_random_state({seed, 0}); }
void set_implicit_redistribution(bool on) { current_graph().client().implicit_redistribution.store(on); }
void set_explain(bool on) { current_graph().client().explain.store(on); }

}  // namespace dtorch
