// The pass that frees values with their last reader; see pass.h.
#include "runtime/controller/passes/pass.h"

namespace dtorch {

namespace {

class LivenessPass final : public Pass {
 public:
  const char* name() const override { return "liveness"; }

  void run(LogicalGraph& graph, const PassContext& context) override {
    // For a slot: the operand (an index) that read its present value last, and in which record.
    last_reader_.clear();
    record_.clear();
    const bool is_near_enough = context.lookahead == PassContext::kAnyDistance;  // wherever it was read
    bool dropped = false;
    for (Operator& op : graph.operators) {
      const uint32_t first = op.first_operand;
      if (op.spec != kReleaseSpec) {
        for (uint32_t k = 0; k < op.num_inputs; ++k) {
          last_reader_.set(graph.operands[first + k] & kMaxOperand, first + k);
          if (!is_near_enough) record_.set(graph.operands[first + k] & kMaxOperand, record_of(op));
        }
        for (OperandId slot : graph.outputs(op)) last_reader_.erase(slot);
        continue;
      }
      for (uint32_t k = 0; k < op.num_inputs; ++k) {
        OperandId& slot = graph.operands[first + k];
        const uint32_t reader = last_reader_.get(slot);
        if (reader == SlotMap::kNone || (!is_near_enough && record_of(op) - record_.get(slot) > context.lookahead))
          continue;
        graph.operands[reader] |= kLastUse;
        last_reader_.erase(slot);
        slot = kDroppedOperand;
        dropped = true;
      }
    }
    if (dropped) compact(graph);
  }

 private:
  SlotMap last_reader_, record_;
};

}  // namespace

std::unique_ptr<Pass> make_liveness_pass() { return std::make_unique<LivenessPass>(); }

}  // namespace dtorch
