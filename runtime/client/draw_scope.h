// DrawScope: what a function that draws random numbers opens before it does. Used on the Graph's user thread.
#pragma once
#include <exception>

#include "runtime/client/graph_core.h"

namespace dtorch {

// Numbers belong to the Graph that does the work: of `x` where there is one, whatever Graph is current; it is current
// until the scope ends. A call that throws draws nothing: the numbers taken in the scope are given back.
class DrawScope {
 public:
  explicit DrawScope(const Tensor& x = {})
      : core_(x.defined() ? x.value()->graph() : current_graph()),
        scope_(Graph(IntrusivePtr<GraphCore>(&core_))),
        before_(core_.random_state()),
        exceptions_(std::uncaught_exceptions()) {}
  ~DrawScope() {
    if (std::uncaught_exceptions() > exceptions_) core_.set_random_state(before_);
  }
  DrawScope(const DrawScope&) = delete;
  DrawScope& operator=(const DrawScope&) = delete;

 private:
  GraphCore& core_;
  const GraphScope scope_;
  const RandomState before_;
  const int exceptions_;
};

}  // namespace dtorch
