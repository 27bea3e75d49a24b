#include "runtime/controller/passes/value_numbers.h"

#include <utility>

namespace dtorch {

void replace_by_aliases(LogicalGraph& graph, const std::vector<Replacement>& replacements, LogicalGraph& scratch) {
  if (replacements.empty()) return;
  scratch.clear();
  auto replaced = replacements.begin();
  for (uint32_t i = 0; i < graph.operators.size(); ++i) {
    Operator op = graph.operators[i];
    std::span<const OperandId> inputs = std::as_const(graph).inputs(op);
    const std::span<const OperandId> outputs = graph.outputs(op);
    std::span<const Scalar> scalars = graph.scalars_of(op);
    if (replaced != replacements.end() && replaced->op_index == i) {
      op.spec = kAliasSpec;
      inputs = replaced->values;
      scalars = {};
      ++replaced;
    }
    op.first_operand = static_cast<uint32_t>(scratch.operands.size());
    op.first_scalar = static_cast<uint32_t>(scratch.scalars.size());
    op.num_inputs = static_cast<uint16_t>(inputs.size());
    op.num_scalars = static_cast<uint16_t>(scalars.size());
    scratch.operands.insert(scratch.operands.end(), inputs.begin(), inputs.end());
    scratch.operands.insert(scratch.operands.end(), outputs.begin(), outputs.end());
    scratch.scalars.insert(scratch.scalars.end(), scalars.begin(), scalars.end());
    scratch.operators.push_back(op);
    scratch.source_lines.push_back(graph.source_lines[i]);
  }
  std::swap(graph, scratch);
}

}  // namespace dtorch
