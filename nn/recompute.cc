#include "nn/recompute.h"

#include "runtime/autograd/backward.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph_core.h"

namespace dtorch::nn {
namespace {

class RandomStateScope {
 public:
  explicit RandomStateScope(const RandomState& state) : before_(current_graph().random_state()) {
    current_graph().set_random_state(state);
  }
  ~RandomStateScope() { current_graph().set_random_state(before_); }
  RandomStateScope(const RandomStateScope&) = delete;
  RandomStateScope& operator=(const RandomStateScope&) = delete;

 private:
  const RandomState before_;
};

}  // namespace

std::vector<Tensor> checkpoint(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                               const std::vector<Tensor>& inputs, Where where) {
  SourceScope scope(where);
  if (!grad_enabled()) return function(inputs);
  std::vector<Tensor> kept;
  for (const Tensor& input : inputs) kept.push_back(input.detach());
  const RandomState random = current_graph().random_state();
  std::vector<Tensor> outputs;
  {
    NoGrad no_grad;
    outputs = function(kept);
  }
  auto gradient = [function, kept, random](const GradientContext& context) {
    std::vector<Tensor> again = kept;
    for (size_t i = 0; i < again.size(); ++i) {
      if (context.needs_grad(i)) again[i] = again[i].detach().requires_grad_();
    }
    std::vector<Tensor> results, arrived;
    {
      EnableGrad enable;
      const RandomStateScope as_before(random);
      const std::vector<Tensor> all = function(again);
      for (size_t i = 0; i < all.size(); ++i) {
        if (!context.grad_output(i).defined() || !all[i].requires_grad()) continue;
        results.push_back(all[i]);
        arrived.push_back(context.grad_output(i));
      }
    }
    if (!results.empty()) backward(results, arrived);
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < again.size(); ++i) {
      gradients.push_back(context.needs_grad(i) ? pending_grad(again[i]) : Tensor());
    }
    return gradients;
  };
  set_custom_gradient("checkpoint", inputs, outputs, gradient, where);
  return outputs;
}

}  // namespace dtorch::nn
