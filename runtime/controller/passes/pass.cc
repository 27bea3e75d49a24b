#include "runtime/controller/passes/pass.h"

#include <algorithm>

namespace dtorch {

PassList make_passes(const std::vector<std::string>& names, int32_t num_streams, GraphId graph) {
  PassList passes;
  const auto add = [&](std::unique_ptr<Pass> pass) {
    if (std::find(names.begin(), names.end(), pass->name()) != names.end()) passes.push_back(std::move(pass));
  };
  add(make_repeated_operators_pass());
  add(make_redundant_redistributes_pass());
  add(make_dead_operators_pass());
  add(make_early_reductions_pass());
  add(make_liveness_pass());
  add(make_fusion_pass());
  add(make_bucketing_pass());
  if (num_streams > 1) passes.push_back(make_compute_streams_pass(num_streams, graph));
  return passes;
}

void compact(LogicalGraph& graph) {
  size_t num_operators = 0;
  size_t num_operands = 0;
  size_t num_scalars = 0;
  for (size_t i = 0; i < graph.operators.size(); ++i) {
    Operator op = graph.operators[i];
    if ((op.flags & kDroppedFlag) != 0) continue;
    const size_t first_operand = num_operands;
    const size_t end = size_t{op.first_operand} + op.num_inputs + op.num_outputs;
    const bool releases = op.spec == kReleaseSpec;
    for (size_t k = op.first_operand; k < end; ++k) {
      if (releases && graph.operands[k] == kDroppedOperand) continue;
      graph.operands[num_operands++] = graph.operands[k];
    }
    if (releases) op.num_inputs = static_cast<uint16_t>(num_operands - first_operand);
    if (releases && op.num_inputs == 0) continue;
    for (size_t k = 0; k < op.num_scalars; ++k) graph.scalars[num_scalars + k] = graph.scalars[op.first_scalar + k];
    op.first_operand = static_cast<uint32_t>(first_operand);
    op.first_scalar = static_cast<uint32_t>(num_scalars);
    num_scalars += op.num_scalars;
    graph.source_lines[num_operators] = graph.source_lines[i];
    graph.operators[num_operators++] = op;
  }
  graph.operators.resize(num_operators);
  graph.source_lines.resize(num_operators);
  graph.operands.resize(num_operands);
  graph.scalars.resize(num_scalars);
}

}  // namespace dtorch
