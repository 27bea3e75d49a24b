// The tape's entries. record() appends a GradNode for every operator with an input that needs a gradient (and gradients
// on); runtime/autograd walks them.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/base/small_array.h"
#include "runtime/client/tensor.h"

namespace dtorch {

class GradientContext;
using CustomGradientFn = std::function<std::vector<Tensor>(const GradientContext&)>;

// What autograd knows of a tensor that needs a gradient: a leaf (node is null) or output `output_index` of `node`.
class AutogradMeta : public RefCounted, public Recycled<AutogradMeta> {
 public:
  AutogradMeta() = default;
  AutogradMeta(IntrusivePtr<GradNode> producer, uint32_t index) : node(std::move(producer)), output_index(index) {}
  IntrusivePtr<GradNode> node;  // null: a leaf
  uint32_t output_index = 0;
  bool retain = false;  // keep the gradient although not a leaf
  Tensor pending_grad;  // accumulated; may be Partial until read (training.md)
  // Saved for a gradient, this tensor is kept as that value (another layout of the same tensor) and redistributed again
  // when the gradient reads it: a gathered parameter needn't live from forward to backward.
  IntrusivePtr<Value> kept_as;
  const TensorMeta* meta = nullptr;  // of the tensor this belongs to (placements that grad() reports)
};

class GradNode : public RefCounted, public Recycled<GradNode> {
 public:
  const OperatorDef* op = nullptr;  // null: custom
  const char* name = "";
  std::shared_ptr<const void> attributes;  // decoded
  SmallArray<Scalar, 1> scalars;
  struct Input {
    const TensorMeta* meta = nullptr;
    IntrusivePtr<Value> value;            // null unless saved; AutogradMeta::kept_as when there is one
    IntrusivePtr<AutogradMeta> autograd;  // null: needs no gradient
  };
  struct Output {
    const TensorMeta* meta = nullptr;
    IntrusivePtr<Value> value;  // null unless saved
  };
  // What most operators have needs no memory of its own.
  SmallArray<Input, 2> inputs;
  SmallArray<Output, 1> outputs;
  CustomGradientFn custom;  // of a composite with a gradient of its own
  uint64_t order = 0;       // grows along the tape
  SourceLine where;
  bool released = false;           // backward ran without retain_graph
  GradNode* next_dying = nullptr;  // counted_release: long tapes go without recursion
};

// What a gradient function sees.
class GradientContext {
 public:
  GradientContext(const GradNode& node, std::span<const Tensor> grad_outputs)
      : node_(node), grad_outputs_(grad_outputs) {}
  size_t num_inputs() const { return node_.inputs.size(); }
  size_t num_outputs() const { return node_.outputs.size(); }
  Tensor input(size_t i) const;  // without autograd; internal error when it wasn't saved
  Tensor output(size_t i) const;
  const TensorMeta& input_meta(size_t i) const { return *node_.inputs[i].meta; }
  const TensorMeta& output_meta(size_t i) const { return *node_.outputs[i].meta; }
  // Undefined when nothing depends on output i.
  const Tensor& grad_output(size_t i) const { return grad_outputs_[i]; }
  bool needs_grad(size_t i) const { return static_cast<bool>(node_.inputs[i].autograd); }
  const Scalar& scalar(size_t i) const { return node_.scalars[i]; }
  template <class A>
  const A& attributes() const {
    return *static_cast<const A*>(node_.attributes.get());
  }

 private:
  const GradNode& node_;
  std::span<const Tensor> grad_outputs_;
};

// Gives `outputs` (computed without gradients) a gradient function of their own with respect to `inputs`, when
// gradients are on and an input needs one. saved: values the function captures itself.
void set_custom_gradient(const char* name, std::span<const Tensor> inputs, std::span<Tensor> outputs,
                         CustomGradientFn gradient, Where where = Where::current());

// No gradients are recorded in its scope (this thread).
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
// Gradients are recorded in its scope, also inside a NoGrad: what a gradient function computes again.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool before_;
};
bool grad_enabled();

}  // namespace dtorch
