// Pieces that tests of passes write by hand.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/controller/passes/pass.h"
#include "tests/controller/fake_cluster.h"

namespace dtorch {

// Builds pieces by hand: one spec an operator name.
class Pieces {
 public:
  Pieces() {
    const TensorMeta* meta = intern_meta({kTestElements}, kFloat32, Layout::replicated(mesh_));
    for (const char* name : {"test_make", "test_add", "test_scale", "test_pair", "test_effect"}) {
      add_spec(name, {}, {meta});
    }
  }
  void add(LogicalGraph& graph, const std::string& name, std::vector<OperandId> inputs, std::vector<OperandId> outputs,
           std::vector<Scalar> scalars = {}) {
    Operator op{.spec = kReleaseSpec,
                .first_operand = static_cast<uint32_t>(graph.operands.size()),
                .first_scalar = static_cast<uint32_t>(graph.scalars.size()),
                .num_inputs = static_cast<uint16_t>(inputs.size()),
                .num_outputs = static_cast<uint16_t>(outputs.size()),
                .num_scalars = static_cast<uint16_t>(scalars.size())};
    for (const auto& spec : specs_) {
      if (name == OperatorRegistry::global().at(spec->op).name) op.spec = spec->id;
    }
    graph.operators.push_back(op);
    graph.operands.insert(graph.operands.end(), inputs.begin(), inputs.end());
    graph.operands.insert(graph.operands.end(), outputs.begin(), outputs.end());
    graph.scalars.insert(graph.scalars.end(), scalars.begin(), scalars.end());
    graph.source_lines.push_back({"user.cc", static_cast<uint32_t>(graph.operators.size())});
  }
  // A redistribution of a tensor on two devices.
  void move(LogicalGraph& graph, OperandId from, const Placement& source, OperandId to, const Placement& destination) {
    add(graph, "release", {from}, {to});
    graph.operators.back().spec = add_spec("test_move", {meta_of(source)}, {meta_of(destination)});
  }
  // A test_scale of a tensor of any shape.
  void scale(LogicalGraph& graph, OperandId from, const Shape& from_shape, OperandId to, const Shape& to_shape) {
    const auto meta = [&](const Shape& shape) {
      return intern_meta(shape, kFloat32, Layout(mesh_, {Replicate()}, shape.ndim()));
    };
    add(graph, "release", {from}, {to});
    graph.operators.back().spec = add_spec("test_scale", {meta(from_shape)}, {meta(to_shape)});
  }
  // "add(0, 1!) -> 2; release(3)": ! marks a last use, & an operator that is fused with the next,
  // + one that is in a bucket with it.
  std::string str(const LogicalGraph& graph) const {
    std::string text;
    for (const Operator& op : graph.operators) {
      const std::string name = op.is_call() ? std::string(table.at(op.spec).op_name).substr(5) : table.op_name(op.spec);
      std::string inputs;
      for (OperandId slot : graph.inputs(op)) {
        inputs +=
            (inputs.empty() ? "" : ", ") + std::to_string(slot & kMaxOperand) + ((slot & kLastUse) != 0 ? "!" : "");
      }
      text += (text.empty() ? "" : "; ") + name + "(" + inputs + ")";
      for (OperandId slot : graph.outputs(op)) text += " -> " + std::to_string(slot);
      for (const Scalar& scalar : graph.scalars_of(op)) text += " #" + std::to_string(scalar.bits);
      if (is_fused_with_next(op)) text += " &";
      if (is_sent_with_next(op)) text += " +";
    }
    return text;
  }
  SpecTable table;

 private:
  uint32_t add_spec(const std::string& name, std::vector<const TensorMeta*> inputs,
                    std::vector<const TensorMeta*> outputs) {
    const uint16_t op = test_operator(name).index;
    for (const auto& spec : specs_) {
      if (spec->op == op && spec->inputs == inputs && spec->outputs == outputs) return spec->id;
    }
    auto spec = std::make_unique<OperatorSpec>();
    spec->id = static_cast<uint32_t>(specs_.size());
    spec->op = op;
    spec->inputs = std::move(inputs);
    spec->outputs = std::move(outputs);
    table.find_or_add(*spec, false);
    specs_.push_back(std::move(spec));
    return specs_.back()->id;
  }
  const TensorMeta* meta_of(const Placement& placement) const {
    return intern_meta({kTestElements}, kFloat32, Layout(mesh_, {placement}, 1));
  }
  const DeviceMesh mesh_ = init_device_mesh("cpu", {2});
  std::vector<std::unique_ptr<OperatorSpec>> specs_;
};

}  // namespace dtorch
