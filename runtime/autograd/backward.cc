#include "runtime/autograd/backward.h"

#include "ops/create/functions.h"
#include "runtime/autograd/gradient_placement.h"
#include "runtime/autograd/segment.h"
#include "runtime/client/call_error.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph_core.h"

namespace dtorch {
namespace {

std::string number_of(size_t i) { return "output " + std::to_string(i); }

// The gradient that arrives at output i.
Tensor output_gradient(const Tensor& output, const Tensor* given, size_t i, const Where& where) {
  if (given && given->defined()) {
    if (given->shape() != output.shape()) {
      throw at_line(ShapeError("[backward] the gradient of " + number_of(i) + " has shape " + given->shape().str() +
                               ", the output " + output.shape().str()),
                    where);
    }
    return given->detach();
  }
  if (output.numel() != 1) {
    throw at_line(
        UserError("[backward] " + number_of(i) + " has shape " + output.shape().str() +
                  ": without a gradient only a tensor with one element has a backward; pass one of that shape"),
        where);
  }
  return full_with_layout(output.shape(), 1, output.dtype(), gradient_layout(output.meta()), where);
}

void check_outputs(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_gradients,
                   const Where& where) {
  if (outputs.empty()) throw at_line(UserError("[backward] no outputs"), where);
  if (!output_gradients.empty() && output_gradients.size() != outputs.size()) {
    throw at_line(UserError("[backward] " + std::to_string(outputs.size()) + " outputs, but " +
                            std::to_string(output_gradients.size()) + " gradients"),
                  where);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) throw at_line(UserError("[backward] " + number_of(i) + " is undefined"), where);
    if (!outputs[i].requires_grad()) {
      throw at_line(UserError("[backward] " + number_of(i) + " (" + outputs[i].str() +
                              ") depends on no tensor that needs a gradient"),
                    where);
    }
    GraphCore& first = outputs[0].value()->graph();
    GraphCore& own = outputs[i].value()->graph();
    if (&own != &first) {
      throw at_line(
          GraphError("[backward] outputs are of different Graphs: output 0 of graph " + std::to_string(first.id()) +
                     ", output " + std::to_string(i) + " of graph " + std::to_string(own.id())),
          where);
    }
  }
}

std::vector<Segment::Result> walk(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_gradients,
                                  const std::vector<Tensor>& inputs, bool retain_graph, const Where& where) {
  check_outputs(outputs, output_gradients, where);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad()) continue;
    throw at_line(UserError("[backward] input " + std::to_string(i) + " needs no gradient"), where);
  }
  NoGrad no_grad;
  GraphScope graph(Graph(IntrusivePtr<GraphCore>(&outputs[0].value()->graph())));
  Segment segment(retain_graph, where);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor* given = output_gradients.empty() ? nullptr : &output_gradients[i];
    segment.add_output(outputs[i], output_gradient(outputs[i], given, i, where));
  }
  if (!inputs.empty()) segment.restrict_to(inputs);
  segment.run();
  return segment.results();
}

}  // namespace

void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_gradients,
              const std::vector<Tensor>& inputs, const BackwardOptions& options, Where where) {
  NoGrad no_grad;
  for (const auto& [autograd, gradient] : walk(outputs, output_gradients, inputs, options.retain_graph, where)) {
    Tensor& sum = autograd->pending_grad;
    sum = sum.defined() ? add_gradients(sum, gradient, where) : gradient;
    if (options.reduction == GradientReduction::kEachBackward) sum = reduce_gradient(sum, *autograd->meta, where);
  }
}

std::vector<Tensor> pending_gradients(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_gradients,
                                      const std::vector<Tensor>& inputs, const BackwardOptions& options, Where where) {
  if (inputs.empty()) return {};
  const std::vector<Segment::Result> results = walk(outputs, output_gradients, inputs, options.retain_graph, where);
  std::vector<Tensor> found(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const auto& [autograd, gradient] : results) {
      if (autograd == inputs[i].autograd()) found[i] = gradient;
    }
  }
  return found;
}

std::vector<Tensor> gradients(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_gradients,
                              const std::vector<Tensor>& inputs, const BackwardOptions& options, Where where) {
  std::vector<Tensor> found = pending_gradients(outputs, output_gradients, inputs, options, where);
  NoGrad no_grad;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].defined()) found[i] = reduce_gradient(found[i], inputs[i].meta(), where);
  }
  return found;
}

void add_to_grad(const Tensor& leaf, const Tensor& gradient, Where where) {
  NoGrad no_grad;
  if (!leaf.requires_grad()) throw at_line(UserError("[add_to_grad] the tensor needs no gradient"), where);
  const Tensor normal = normalize_gradient(gradient, leaf.meta(), where);
  Tensor& sum = leaf.autograd()->pending_grad;
  sum = sum.defined() ? add_gradients(sum, normal, where) : normal;
}

Tensor pending_grad(const Tensor& tensor) { return tensor.autograd() ? tensor.autograd()->pending_grad : Tensor(); }

Tensor Tensor::grad(Where where) const {
  if (!autograd_ || !autograd_->pending_grad.defined()) return {};
  NoGrad no_grad;
  autograd_->pending_grad = reduce_gradient(autograd_->pending_grad, meta(), where);
  return autograd_->pending_grad;
}

void Tensor::zero_grad() {
  if (autograd_) autograd_->pending_grad = Tensor();
}

void Tensor::backward(Where where) const { dtorch::backward({*this}, {}, {}, {}, where); }

void Tensor::backward(const Tensor& gradient, Where where) const {
  dtorch::backward({*this}, {gradient}, {}, {}, where);
}

}  // namespace dtorch
