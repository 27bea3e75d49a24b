// The pass that drops operators nobody needs; see pass.h.
#include <algorithm>

#include "runtime/controller/passes/pass.h"

namespace dtorch {

namespace {

class DeadOperatorsPass final : public Pass {
 public:
  const char* name() const override { return "dead_operators"; }

  void run(LogicalGraph& graph, const PassContext& context) override {
    // For a slot: where it is released later in the piece with no use in between, and in which record. Filled from the
    // end.
    released_.clear();
    record_.clear();
    const bool is_near_enough = context.lookahead == PassContext::kAnyDistance;  // wherever it is released
    bool dropped = false;
    for (size_t i = graph.operators.size(); i-- > 0;) {
      Operator& op = graph.operators[i];
      if (op.spec == kReleaseSpec) {
        for (uint32_t k = 0; k < op.num_inputs; ++k) {
          released_.set(graph.operands[op.first_operand + k], op.first_operand + k);
          if (!is_near_enough) record_.set(graph.operands[op.first_operand + k], record_of(op));
        }
        continue;
      }
      const std::span<const OperandId> outputs = graph.outputs(op);
      const bool is_dead = (op.spec == kAliasSpec || context.specs.at(op.spec).droppable) && op.num_outputs > 0 &&
                           std::all_of(outputs.begin(), outputs.end(), [&](OperandId slot) {
                             return released_.get(slot) != SlotMap::kNone &&
                                    (is_near_enough || record_.get(slot) - record_of(op) <= context.lookahead);
                           });
      for (OperandId slot : outputs) {
        if (is_dead) graph.operands[released_.get(slot)] = kDroppedOperand;
        released_.erase(slot);
      }
      if (is_dead) {
        op.flags |= kDroppedFlag;
        dropped = true;
        continue;
      }
      for (OperandId slot : graph.inputs(op)) released_.erase(slot & kMaxOperand);
    }
    if (dropped) compact(graph);
  }

 private:
  SlotMap released_, record_;
};

}  // namespace

std::unique_ptr<Pass> make_dead_operators_pass() { return std::make_unique<DeadOperatorsPass>(); }

}  // namespace dtorch
