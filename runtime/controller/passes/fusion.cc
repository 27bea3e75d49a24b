// The pass that finds elementwise operators which can run as one; see pass.h. What a node makes of a run is the node's
// (runtime/worker/fused_run.h).
#include <algorithm>

#include "runtime/controller/passes/pass.h"

namespace dtorch {

namespace {

// A run is sent as a whole, so a longer one keeps nodes waiting. Its calls' blocks stay in the cache either way.
constexpr size_t kMaxRun = 64;

class FusionPass final : public Pass {
 public:
  const char* name() const override { return "fusion"; }

  void run(LogicalGraph& graph, const PassContext& context) override {
    const auto fusable = [&](size_t i) {
      const Operator& op = graph.operators[i];
      return op.is_call() ? context.specs.at(op.spec).fusable : nullptr;
    };
    for (size_t first = 0, end = 0; first < graph.operators.size(); first = end) {
      const TensorMeta* const output = fusable(first);
      for (end = first + 1; output != nullptr && end < graph.operators.size() && end - first < kMaxRun; ++end) {
        const TensorMeta* const next = fusable(end);
        if (next == nullptr || !meets(*next, *output)) break;
      }
      if (end - first > 1) mark(graph, first, end);
    }
  }

 private:
  // Dtypes may differ.
  static bool meets(const TensorMeta& a, const TensorMeta& b) {
    return &a == &b || (a.global_shape == b.global_shape && a.layout == b.layout);
  }

  // Of calls that may be fused: those from the first that makes a value to the last that uses it are one run.
  void mark(LogicalGraph& graph, size_t first, size_t end) {
    makers_.clear();
    reach_.assign(end - first, first);
    for (size_t i = first; i < end; ++i) {
      const Operator& op = graph.operators[i];
      for (OperandId operand : std::as_const(graph).inputs(op)) {
        const uint32_t maker = makers_.get(operand & kMaxOperand);
        if (maker != SlotMap::kNone) reach_[maker] = i;
        if ((operand & kLastUse) != 0) makers_.erase(operand & kMaxOperand);
      }
      makers_.set(graph.outputs(op)[0], static_cast<uint32_t>(i - first));
    }
    size_t reached = first;
    for (size_t i = first; i < end; ++i) {
      reached = std::max(reached, reach_[i - first]);
      if (reached > i) graph.operators[i].flags |= kFusedWithNext;
    }
  }

  SlotMap makers_;             // by slot: the call of the stretch that made what it holds
  std::vector<size_t> reach_;  // by call of the stretch: the last one that uses its value
};

}  // namespace

std::unique_ptr<Pass> make_fusion_pass() { return std::make_unique<FusionPass>(); }

}  // namespace dtorch
