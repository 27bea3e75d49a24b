// The pass that lets reductions begin while what comes after their inputs is still computed; see pass.h.
#include <algorithm>
#include <numeric>

#include "mesh/layout.h"
#include "runtime/controller/passes/pass.h"

namespace dtorch {

namespace {

class EarlyReductionsPass final : public Pass {
 public:
  const char* name() const override { return "early_reductions"; }

  void run(LogicalGraph& graph, const PassContext& context) override {
    order_.assign(graph.operators.size(), {});
    touched_.clear();
    written_.clear();
    bool any = false;
    uint32_t num_moved = 0;
    for (size_t i = 0; i < graph.operators.size(); ++i) {
      const Operator& op = graph.operators[i];
      Position at{static_cast<uint32_t>(i) + 1, 0};
      if (is_reduction(op, context)) {
        // Behind whatever makes its input, and behind every other use of the slot that its result gets.
        uint32_t behind = std::max(last(written_, graph.inputs(op)[0]), last(touched_, graph.outputs(op)[0]));
        behind = std::max(behind, i >= kPassReach ? static_cast<uint32_t>(i - kPassReach) : 0u);
        if (behind < i) {
          at = {behind, ++num_moved};
          any = true;
        }
      }
      order_[i] = at;
      for (OperandId operand : std::as_const(graph).inputs(op)) note(touched_, operand, at);
      if (op.spec == kReleaseSpec) {
        for (OperandId operand : std::as_const(graph).inputs(op)) note(written_, operand, at);
      }
      for (OperandId operand : graph.outputs(op)) {
        note(touched_, operand, at);
        note(written_, operand, at);
      }
    }
    if (any) rearrange(graph);
  }

 private:
  // The original number, from 1, of the call that a call comes behind or is; among those behind one, in their order.
  struct Position {
    uint32_t call = 0, number = 0;
    friend bool operator<(const Position& a, const Position& b) {
      return a.call != b.call ? a.call < b.call : a.number < b.number;
    }
  };

  // Of a pending value, so that no memory is held longer than before but that of a result of at most its size. Others
  // stay: gathers that begin early would have all that they gather in memory at once.
  static bool is_reduction(const Operator& op, const PassContext& context) {
    if (!op.is_call()) return false;
    const SpecInfo& info = context.specs.at(op.spec);
    return info.redistributes && info.moves_data && info.spec->inputs[0]->layout.has_partial() &&
           info.spec->outputs[0]->num_bytes() <= info.spec->inputs[0]->num_bytes();
  }
  static uint32_t last(const SlotMap& of, OperandId operand) {
    const uint32_t call = of.get(operand & kMaxOperand);
    return call == SlotMap::kNone ? 0 : call;
  }
  static void note(SlotMap& in, OperandId operand, const Position& at) {
    in.set(operand & kMaxOperand, std::max(last(in, operand), at.call));
  }

  void rearrange(LogicalGraph& graph) {
    std::vector<uint32_t> sorted(graph.operators.size());
    std::iota(sorted.begin(), sorted.end(), 0u);
    std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) { return order_[a] < order_[b]; });
    LogicalGraph result;
    for (uint32_t i : sorted) {
      Operator op = graph.operators[i];
      const auto operands = graph.operands.begin() + op.first_operand;
      const std::span<const Scalar> scalars = graph.scalars_of(op);
      op.first_operand = static_cast<uint32_t>(result.operands.size());
      op.first_scalar = static_cast<uint32_t>(result.scalars.size());
      result.operands.insert(result.operands.end(), operands, operands + op.num_inputs + op.num_outputs);
      result.scalars.insert(result.scalars.end(), scalars.begin(), scalars.end());
      result.operators.push_back(op);
      result.source_lines.push_back(graph.source_lines[i]);
    }
    graph = std::move(result);
  }

  std::vector<Position> order_;  // by call
  SlotMap touched_, written_;    // by slot: the last call.. that reads, makes or releases; that makes or releases
};

}  // namespace

std::unique_ptr<Pass> make_early_reductions_pass() { return std::make_unique<EarlyReductionsPass>(); }

}  // namespace dtorch
