// What an operator is: everything about it in one value, declared in the operator's own file and listed in
// ops/operator_list.cc. No LibTorch here; kernels see it through KernelContext.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mesh/layout.h"
#include "mesh/signature.h"
#include "ops/def/attributes.h"
#include "ops/def/native_tensor.h"
#include "runtime/graph/logical_graph.h"

namespace dtorch {

class Tensor;           // runtime/client/tensor.h
class GradientContext;  // runtime/client/gradient.h
class PreparedKernel;   // ops/def/prepared_kernel.h

// --- inference (on the client, from metadata alone)
// -------------------------------------------------------------------------------
struct OutputMeta {
  Shape global_shape;
  DType dtype = kFloat32;
};

struct InferContext {
  const char* op;  // name, for messages
  std::span<const TensorMeta* const> inputs;
  const void* attributes_;
  template <class A>
  const A& attributes() const {
    return *static_cast<const A*>(attributes_);
  }
  const Shape& shape(size_t i) const { return inputs[i]->global_shape; }
  DType dtype(size_t i) const { return inputs[i]->dtype; }
};
// Global shapes and dtypes of the outputs; throws ShapeError / DTypeError that says what, got, allowed.
using InferFn = std::vector<OutputMeta> (*)(const InferContext&);
// Placement rows for one mesh axis, given inputs and inferred outputs.
using RuleFn = Rule (*)(const InferContext&, std::span<const OutputMeta> outputs);
// For rules that must see all axes at once (views): the output layouts, or nullopt and a reason.
using LayoutFn = std::optional<std::vector<Layout>> (*)(const InferContext&, std::span<const OutputMeta> outputs,
                                                        std::string* reason);

// --- kernels (on a device's stream)
// -------------------------------------------------------------------------------------------------- One operator
// lowered for one local device; made once per (spec, device) and reused by every call.
struct LocalOperator {
  uint16_t op = 0;
  const OperatorSpec* spec = nullptr;
  std::shared_ptr<const void> attributes;
  int64_t device = 0;
  std::vector<Box> input_boxes;  // global coordinates of this device's parts; empty Box for inputs it holds no part of
  std::vector<Box> output_boxes;
};

class KernelContext {
 public:
  // operands: the inputs' numbers as the call has them, with kLastUse.
  KernelContext(const LocalOperator& local, std::span<NativeTensor> inputs, std::span<NativeTensor> outputs,
                std::span<const Scalar> scalars, std::span<const OperandId> operands, const std::byte* feed)
      : local_(local), inputs_(inputs), outputs_(outputs), scalars_(scalars), operands_(operands), feed_(feed) {}

  template <class A>
  const A& attributes() const {
    return *static_cast<const A*>(local_.attributes.get());
  }
  size_t num_inputs() const { return inputs_.size(); }
  size_t num_outputs() const { return outputs_.size(); }
  const NativeTensor& input(size_t i) const { return inputs_[i]; }
  NativeTensor& output(size_t i) { return outputs_[i]; }  // to be set by the kernel
  const Box& input_box(size_t i) const { return local_.input_boxes[i]; }
  const Box& output_box(size_t i) const { return local_.output_boxes[i]; }
  const TensorMeta& input_meta(size_t i) const { return *local_.spec->inputs[i]; }
  const TensorMeta& output_meta(size_t i) const { return *local_.spec->outputs[i]; }
  int64_t device() const { return local_.device; }
  const Scalar& scalar(size_t i) const {
    DTORCH_CHECK(i < scalars_.size(),
                 "scalar " + std::to_string(i) + " of a call with " + std::to_string(scalars_.size()));
    return scalars_[i];
  }
  // Input i was handed over: its last handle is gone and nobody else reads its storage, so that the kernel may write
  // into it and return it as an output.
  bool may_reuse(size_t i) const { return (operands_[i] & kLastUse) != 0 && inputs_[i].is_reusable(); }
  // This device's position-dependent facts for a Partial output: true on the device at position 0 of every axis on
  // which output i is Partial, so that exactly one holder per group contributes.
  bool is_partial_owner(size_t i) const;
  // Host bytes of a from_host operator (the whole tensor, row-major), else null.
  const std::byte* feed() const { return feed_; }

 private:
  const LocalOperator& local_;
  std::span<NativeTensor> inputs_;
  std::span<NativeTensor> outputs_;
  std::span<const Scalar> scalars_;
  std::span<const OperandId> operands_;  // of the inputs, with kLastUse
  const std::byte* feed_;
};
// Sets every output to a tensor of the inferred local shape and dtype. Never communicates. Failures are exceptions.
using KernelFn = void (*)(KernelContext&);
// The kernel of one LocalOperator with its set-up done (ops/def/prepared_kernel.h); null when these operands have none.
// Called once a spec and device. Looks at the LocalOperator, doesn't keep it.
using PrepareFn = std::unique_ptr<PreparedKernel> (*)(const LocalOperator&);

// --- gradient (on the client)
// --------------------------------------------------------------------------------------------------------- Gradients
// of the inputs (undefined Tensor: none), recorded through the same interface as any operator.
using GradientFn = std::vector<Tensor> (*)(const GradientContext&);

// --- samples for the generic checker
// --------------------------------------------------------------------------------------------------
enum class SampleFill : uint8_t { kNormal, kPositive, kIota, kIndices, kBool, kDistinct, kUnit };
struct SampleInput {
  Shape global_shape;
  DType dtype = kFloat32;
  SampleFill fill = SampleFill::kNormal;
  int64_t index_bound = 0;     // kIndices: values in [0, bound)
  bool differentiable = true;  // floating inputs only
};
struct Sample {
  std::string name;
  std::vector<SampleInput> inputs;
  // Calls the user-facing function.
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> call;
  double tolerance = 0;  // relative; 0: 1e-12 float64, 1e-5 float32, bitwise else
};
using SamplesFn = std::vector<Sample> (*)();

enum class OperatorClass : uint8_t { kPure, kRead, kEffect };
enum class Lowering : uint8_t {
  kKernel,    // one kernel a local device
  kTransfer,  // redistribute: a plan over the data plane
  kExchange,  // ragged rows change owners (row_exchange.h)
  kRead,      // sends the value's boxes to the controller
};
// How docs/operators.md calls what happens when no row fits (distribution.md).
enum class PlacementClass : uint8_t { kRefuses, kCombines, kAnyLayout };

// Operator files define theirs as `constinit OperatorDef softmax_op = {.name = "softmax", ...};` at namespace scope.
struct OperatorDef {
  const char* name = "";
  const char* signature = "";  // "softmax(x, dim) -> Tensor", for the operator table
  AttributeCodec attributes = attribute_codec<NoAttrs>();
  InferFn infer = nullptr;
  RuleFn rule = nullptr;  // null: layouts are given explicitly by the caller (creation, redistribute) or by `layouts`
  LayoutFn layouts = nullptr;
  KernelFn kernel = nullptr;      // null in builds without kernels
  PrepareFn prepare = nullptr;    // null: calls always run `kernel`
  GradientFn gradient = nullptr;  // null: not differentiable
  SamplesFn samples = nullptr;
  OperatorClass klass = OperatorClass::kPure;
  Lowering lowering = Lowering::kKernel;
  PlacementClass placement_class = PlacementClass::kRefuses;
  const char* linear_in = "";  // for the operator table
  // Bit i: the gradient function reads the value of input / output i, so that the tape keeps it alive.
  uint32_t saved_inputs = 0xFFFFFFFFu;
  uint32_t saved_outputs = 0;
  // Every element of the one output is a function of the same element of the inputs alone (and of numbers of the call),
  // so that it may be fused with others. Needs `prepare`.
  bool elementwise = false;
  // Bit i: input / output i is ragged (row_exchange.h).
  uint32_t ragged_inputs = 0;
  uint32_t ragged_outputs = 0;
  bool is_step = false;        // a training step ends behind it: an optimizer's
  uint16_t index = 0;          // set by the registry
  const char* user_name = "";  // set by the registry: the signature's name

  // What the user knows it by, for messages: mul where the operator is mul_number.
  const char* called() const { return user_name[0] != '\0' ? user_name : name; }
};

// The operators of this process in a fixed order. Filled once before dtorch::run (thread-safe to read after that).
class OperatorRegistry {
 public:
  static OperatorRegistry& global();
  // Keeps a pointer to `def` (which must live as long as the process) and sets its index. The name must be new.
  void add(OperatorDef& def);
  const OperatorDef& at(uint16_t index) const;           // throws DecodeError
  const OperatorDef* find(std::string_view name) const;  // null when unknown
  size_t size() const { return defs_.size(); }
  uint64_t hash() const;  // over names and order; compared over ranks at start-up

 private:
  std::vector<OperatorDef*> defs_;
};

#ifndef DTORCH_WITH_KERNELS
#define DTORCH_WITH_KERNELS 1
#endif
// Names a kernel in an operator's definition; null in builds without kernels.
#if DTORCH_WITH_KERNELS
#define DTORCH_KERNEL(...) (__VA_ARGS__)
#else
#define DTORCH_KERNEL(...) (nullptr)
#endif

}  // namespace dtorch
