// Which compute stream of its device a call runs on; see pass.h. Every call goes where it could begin first, were calls
// run as they are listed on streams as fast as each other; so calls that depend on each other stay together, and chains
// that don't go to different streams.
#include <algorithm>
#include <array>

#include "runtime/controller/passes/pass.h"
#include "runtime/graph/compute_streams.h"

namespace dtorch {

namespace {

// How long a call takes, in units of half the smallest one: nobody knows, but what makes much takes long. To hand a
// value to another stream costs one unit.
constexpr int64_t kCall = 2;
constexpr int64_t kBytesOfUnit = 32 << 10;
constexpr int64_t kHandOver = 1;

class ComputeStreamsPass final : public Pass {
 public:
  ComputeStreamsPass(int32_t num_streams, GraphId graph)
      : num_streams_(num_streams), first_(static_cast<int32_t>(graph % static_cast<GraphId>(num_streams))) {}
  const char* name() const override { return "compute_streams"; }
  void run(LogicalGraph&, const PassContext&) override {}

  void finish(LogicalGraph& graph, const PassContext& context) override {
    free_at_.fill(0);
    ready_.clear();
    values_.clear();
    for (size_t first = 0; first < graph.operators.size();) {
      const Operator& op = graph.operators[first];
      const size_t end = first + fused_run_length(graph.operators, first);
      if (op.is_call()) {
        place(graph, first, end, context);
      } else if (op.spec == kAliasSpec) {
        for (uint32_t k = 0; k < op.num_inputs; ++k) share(graph.inputs(op)[k] & kMaxOperand, graph.outputs(op)[k]);
      }
      first = end;
    }
  }

 private:
  struct Value {
    int64_t ready_at = 0;
    int32_t stream = 0;
  };

  void share(OperandId from, OperandId to) {
    const uint32_t value = ready_.get(from);
    value == SlotMap::kNone ? ready_.erase(to) : ready_.set(to, value);
  }

  // The calls [first, end), which are one run or one call.
  void place(LogicalGraph& graph, size_t first, size_t end, const PassContext& context) {
    std::array<int64_t, kMaxComputeStreams> begin = free_at_;
    int64_t cost = 0;
    bool has_effect = false;
    for (size_t i = first; i < end; ++i) {
      const Operator& op = graph.operators[i];
      const SpecInfo& info = context.specs.at(op.spec);
      cost += kCall + info.output_bytes / kBytesOfUnit;
      has_effect |= info.has_effect;
      for (OperandId operand : std::as_const(graph).inputs(op)) {
        const uint32_t number = ready_.get(operand & kMaxOperand);
        if (number == SlotMap::kNone) continue;  // from before, or from other devices
        const Value& value = values_[number];
        for (int32_t s = 0; s < num_streams_; ++s) {
          int64_t& at = begin[static_cast<size_t>(s)];
          at = std::max(at, value.ready_at + (s == value.stream ? 0 : kHandOver));
        }
      }
    }
    // Effects are had in the order in which they are listed.
    const int32_t stream = has_effect ? 0 : earliest(begin);
    const int64_t end_at = begin[static_cast<size_t>(stream)] + cost;
    free_at_[static_cast<size_t>(stream)] = end_at;
    for (size_t i = first; i < end; ++i) {
      Operator& op = graph.operators[i];
      set_stream(op, static_cast<uint16_t>(stream));
      for (OperandId slot : graph.outputs(op)) {
        if (context.specs.at(op.spec).moves_data) {
          ready_.erase(slot);
          continue;
        }
        ready_.set(slot, static_cast<uint32_t>(values_.size()));
        values_.push_back({end_at, stream});
      }
    }
  }

  // Between equals the Graph's first one, so that Graphs begin on different streams.
  int32_t earliest(const std::array<int64_t, kMaxComputeStreams>& begin) const {
    int32_t best = first_;
    for (int32_t k = 1; k < num_streams_; ++k) {
      const int32_t stream = (first_ + k) % num_streams_;
      if (begin[static_cast<size_t>(stream)] < begin[static_cast<size_t>(best)]) best = stream;
    }
    return best;
  }

  const int32_t num_streams_, first_;
  std::array<int64_t, kMaxComputeStreams> free_at_{};  // by stream
  std::vector<Value> values_;
  SlotMap ready_;  // by slot: its value's number in values_, for what is made here
};

}  // namespace

std::unique_ptr<Pass> make_compute_streams_pass(int32_t num_streams, GraphId graph) {
  return std::make_unique<ComputeStreamsPass>(num_streams, graph);
}

}  // namespace dtorch
