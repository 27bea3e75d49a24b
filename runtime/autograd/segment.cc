#include "runtime/autograd/segment.h"

#include <algorithm>

#include "ops/math/functions.h"
#include "runtime/autograd/gradient_placement.h"
#include "runtime/client/graph.h"
#include "runtime/client/thread_state.h"

namespace dtorch {

void Segment::restrict_to(const std::vector<Tensor>& inputs) {
  restricted_ = true;
  for (const Tensor& input : inputs) inputs_.insert(input.autograd().get());
  std::vector<const GradNode*> found;
  std::unordered_set<const GradNode*> seen;
  for (const auto& [node, work] : work_) {
    if (seen.insert(node).second) found.push_back(node);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    for (const GradNode::Input& input : found[i]->inputs) {
      const GradNode* before = input.autograd ? input.autograd->node.get() : nullptr;
      if (before && seen.insert(before).second) found.push_back(before);
    }
  }
  std::ranges::sort(found, {}, &GradNode::order);
  for (const GradNode* node : found) {
    const bool leads = std::ranges::any_of(node->inputs, [&](const GradNode::Input& input) {
      return input.autograd && (inputs_.contains(input.autograd.get()) || needed_.contains(input.autograd->node.get()));
    });
    if (leads) needed_.insert(node);
  }
}

bool Segment::is_wanted(const AutogradMeta& autograd) const {
  return !restricted_ || inputs_.contains(&autograd) || needed_.contains(autograd.node.get());
}

void Segment::add_output(const Tensor& output, const Tensor& gradient) { deposit(output.autograd(), gradient); }

void Segment::deposit(const IntrusivePtr<AutogradMeta>& autograd, const Tensor& gradient) {
  Tensor normal = normalize_gradient(gradient, *autograd->meta, where_);
  Tensor* sum = nullptr;
  if (!autograd->node) {
    auto [at, is_new] = leaf_result_.try_emplace(autograd.get(), results_.size());
    if (is_new) results_.emplace_back(autograd, Tensor());
    sum = &results_[at->second].second;
  } else {
    GradNode* node = autograd->node.get();
    auto [at, is_new] = work_.try_emplace(node);
    Work& work = at->second;
    if (is_new) {
      work.node = autograd->node;
      work.outputs.resize(node->outputs.size());
      work.gradients.resize(node->outputs.size());
      ready_.emplace(node->order, node);
    }
    work.outputs[autograd->output_index] = autograd;
    sum = &work.gradients[autograd->output_index];
  }
  *sum = sum->defined() ? add_gradients(*sum, normal, where_) : std::move(normal);
}

std::vector<Tensor> Segment::run_node(Work& work) {
  GradNode& node = *work.node;
  if (node.released) {
    throw UserError(std::string("[backward] what the gradient of ") + node.name + " (" + node.where.str() +
                    ") needs is gone: backward has run over it already; pass retain_graph the first time" +
                    called_at(where_));
  }
  for (size_t i = 0; i < work.gradients.size(); ++i) {
    Tensor& gradient = work.gradients[i];
    if (gradient.defined()) gradient = to(gradient, node.outputs[i].meta->dtype, where_);
  }
  const GradientContext context(node, work.gradients);
  std::vector<Tensor> gradients = node.custom ? node.custom(context) : node.op->gradient(context);
  DTORCH_CHECK(gradients.size() == node.inputs.size(), std::string("gradient of ") + node.name + " gives " +
                                                           std::to_string(gradients.size()) + " gradients for " +
                                                           std::to_string(node.inputs.size()) + " inputs");
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || !node.inputs[i].autograd) continue;
    if (gradients[i].shape() != node.inputs[i].meta->global_shape) {
      throw ShapeError(std::string("[gradient of ") + node.name + "] the gradient of input " + std::to_string(i) +
                       " has shape " + gradients[i].shape().str() + ", the input " +
                       node.inputs[i].meta->global_shape.str());
    }
  }
  return gradients;
}

void Segment::run() {
  NoGrad no_grad;
  ConversionScope conversions(ConversionPolicy::kReduce);
  while (!ready_.empty()) {
    auto entry = work_.extract(ready_.top().second);
    ready_.pop();
    Work& work = entry.mapped();
    GradNode& node = *work.node;
    SourceLineScope line(node.where);
    for (size_t i = 0; i < work.outputs.size(); ++i) {
      const IntrusivePtr<AutogradMeta>& output = work.outputs[i];
      if (output && (restricted_ ? inputs_.contains(output.get()) : output->retain))
        results_.emplace_back(output, work.gradients[i]);
    }
    if (restricted_ && !needed_.contains(&node)) continue;
    const std::vector<Tensor> gradients = run_node(work);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const IntrusivePtr<AutogradMeta>& input = node.inputs[i].autograd;
      if (input && gradients[i].defined() && is_wanted(*input)) deposit(input, gradients[i]);
    }
    if (retain_graph_) continue;
    node.released = true;
    for (GradNode::Input& input : node.inputs) input.value.reset();
    for (GradNode::Output& output : node.outputs) output.value.reset();
    node.custom = nullptr;
  }
  // A leaf may be an output itself without being asked for.
  if (restricted_) std::erase_if(results_, [&](const Result& result) { return !inputs_.contains(result.first.get()); });
}

}  // namespace dtorch
