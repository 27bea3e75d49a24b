// --explain: prints a subgraph as it is at one point between the passes. Changes nothing.
#include <string>

#include "mesh/redistribute_plan.h"
#include "ops/def/operator_def.h"
#include "runtime/base/log.h"
#include "runtime/controller/passes/pass.h"
#include "runtime/graph/compute_streams.h"

namespace dtorch {
namespace {

class PrintPass final : public Pass {
 public:
  PrintPass(const char* when, const DeviceBinding& binding, bool of_result)
      : when_(when), binding_(binding), of_result_(of_result) {}
  const char* name() const override { return "print"; }
  void run(LogicalGraph& graph, const PassContext& context) override {
    if (!of_result_) print(graph, context);
  }
  void finish(LogicalGraph& graph, const PassContext& context) override {
    if (of_result_) print(graph, context);
  }

 private:
  void print(const LogicalGraph& graph, const PassContext& context) const {
    if (graph.empty()) return;
    log_info("subgraph {}:\n{}", when_, graph_text(graph, context.specs, binding_, of_result_));
  }
  const char* const when_;
  const DeviceBinding& binding_;
  const bool of_result_;
};

std::string operands_text(std::span<const OperandId> operands) {
  std::string text;
  for (OperandId id : operands) {
    text += (text.empty() ? "%" : ", %") + std::to_string(id & kMaxOperand) + ((id & kLastUse) != 0 ? "!" : "");
  }
  return text;
}

std::string operator_text(const OperatorSpec& spec, const SpecInfo& info, const DeviceBinding& binding) {
  std::string text;
  for (const TensorMeta* meta : spec.outputs) text += (text.empty() ? ": " : "; ") + meta->str();
  if (!info.moves_data || spec.outputs.empty()) return text;
  if (OperatorRegistry::global().at(spec.op).lowering == Lowering::kExchange)
    return text + ", moves the rows that the data chooses";
  const RedistributePlan plan = make_redistribute_plan(spec.inputs.at(0), spec.outputs.at(0));
  return text + ", moves " + std::to_string(plan.bytes_moved(binding)) + " bytes";
}

}  // namespace

std::string graph_text(const LogicalGraph& graph, const SpecTable& specs, const DeviceBinding& binding,
                       bool with_streams) {
  std::string text;
  bool in_run = false;
  for (size_t i = 0; i < graph.operators.size(); ++i) {
    const Operator& op = graph.operators[i];
    if (is_fused_with_next(op) && !in_run)
      text += "  fused, " + std::to_string(fused_run_length(graph.operators, i)) + " operators:\n";
    if (in_run || is_fused_with_next(op)) text += "  ";
    in_run = is_fused_with_next(op);
    if (op.spec == kReleaseSpec) {
      text += "  release " + operands_text(graph.inputs(op)) + "\n";
      continue;
    }
    const std::string outputs = operands_text(graph.outputs(op));
    if (op.spec == kAliasSpec) {
      text +=
          "  " + outputs + " = alias(" + operands_text(graph.inputs(op)) + ")   " + graph.source_lines[i].str() + "\n";
      continue;
    }
    const SpecInfo& info = specs.at(op.spec);
    text += "  " + outputs + (outputs.empty() ? "" : " = ") + info.op_name + "(" + operands_text(graph.inputs(op)) +
            ")" + operator_text(*info.spec, info, binding) +
            (!with_streams || stream_of(op) == 0 ? "" : ", stream " + std::to_string(stream_of(op))) + "   " +
            graph.source_lines[i].str() + "\n";
  }
  return text;
}

std::unique_ptr<Pass> make_print_pass(const char* when, const DeviceBinding& binding) {
  return std::make_unique<PrintPass>(when, binding, false);
}

std::unique_ptr<Pass> make_print_result_pass(const char* when, const DeviceBinding& binding) {
  return std::make_unique<PrintPass>(when, binding, true);
}

}  // namespace dtorch
