#include "runtime/client/gradient.h"

#include "runtime/client/graph_core.h"

namespace dtorch {
namespace {

struct Dying {
  GradNode* first = nullptr;
  bool draining = false;
};
constinit thread_local Dying dying;

const Value& saved_value(const IntrusivePtr<Value>& value, const char* node, const char* what, size_t i) {
  DTORCH_CHECK(value,
               std::string("gradient of ") + node + " reads " + what + " " + std::to_string(i) + ", which isn't saved");
  return *value;
}

}  // namespace

void counted_add_ref(AutogradMeta* object) { object->add_ref(); }
void counted_release(AutogradMeta* object) {
  if (object->drop_ref()) delete object;
}

void counted_add_ref(GradNode* object) { object->add_ref(); }
// A node's inputs hold the nodes before it: those that die with it wait in a list, so that a long tape needs no deep
// stack.
void counted_release(GradNode* object) {
  if (!object->drop_ref()) return;
  object->next_dying = dying.first;
  dying.first = object;
  if (dying.draining) return;
  dying.draining = true;
  while (GradNode* node = dying.first) {
    dying.first = node->next_dying;
    delete node;
  }
  dying.draining = false;
}

Tensor GradientContext::input(size_t i) const {
  const GradNode::Input& input = node_.inputs[i];
  const Tensor kept(input.value, {});
  if (saved_value(input.value, node_.name, "input", i).meta() == input.meta) return kept;
  return kept.redistribute(input.meta->layout);
}

Tensor GradientContext::output(size_t i) const {
  saved_value(node_.outputs[i].value, node_.name, "output", i);
  return Tensor(node_.outputs[i].value, {});
}

void set_custom_gradient(const char* name, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                         CustomGradientFn gradient, Where where) {
  bool needed = false;
  for (const Tensor& input : inputs) needed |= input.defined() && input.requires_grad();
  if (!grad_enabled() || !needed || outputs.empty()) return;
  auto node = make_intrusive<GradNode>();
  node->name = name;
  node->custom = std::move(gradient);
  node->order = outputs[0].value()->graph().next_tape_order();
  node->where = source_line(where);
  node->inputs.set_size(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    node->inputs[i].meta = inputs[i].defined() ? &inputs[i].meta() : nullptr;
    node->inputs[i].autograd = inputs[i].autograd();
  }
  node->outputs.set_size(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorMeta* meta = &outputs[i].meta();
    node->outputs[i].meta = meta;
    if (!is_floating(meta->dtype)) continue;
    auto autograd = make_intrusive<AutogradMeta>(node, static_cast<uint32_t>(i));
    autograd->meta = meta;
    outputs[i] = Tensor(outputs[i].value(), std::move(autograd));
  }
}

}  // namespace dtorch
