// The pass that puts small reductions together; see pass.h. Each keeps its plan and its order of summation, so that
// values don't change: only messages are fewer.
#include "runtime/controller/passes/pass.h"
#include "runtime/graph/transfer_buckets.h"

namespace dtorch {

namespace {

// One that takes longer to move than to announce gains nothing.
constexpr int64_t kMaxMemberBytes = 32 << 10;  // of the whole tensor
constexpr int64_t kMaxBucketBytes = 512 << 10;
constexpr size_t kMaxMembers = 64;

class BucketingPass final : public Pass {
 public:
  const char* name() const override { return "bucketing"; }

  void run(LogicalGraph& graph, const PassContext& context) override {
    members_ = 0;
    for (size_t i = 0; i < graph.operators.size(); ++i) {
      const Operator& op = graph.operators[i];
      if (touches_results(graph, op)) close(graph);
      if (!op.is_call() || !context.specs.at(op.spec).moves_data) continue;
      const OperatorSpec& spec = *context.specs.at(op.spec).spec;
      if (!may_join(context.specs.at(op.spec))) {
        close(graph);  // all transfers of a stretch belong to it
        continue;
      }
      const int64_t bytes = spec.inputs[0]->num_bytes();
      if (members_ != 0 &&
          (members_ == kMaxMembers || bytes_ + bytes > kMaxBucketBytes || !meets(spec) || i - first_ >= kPassReach)) {
        close(graph);
      }
      if (members_++ == 0) {
        first_ = i;
        bytes_ = 0;
        of_first_ = &spec;
        results_.clear();
      }
      last_ = i;
      bytes_ += bytes;
      results_.set(graph.outputs(op)[0], 1);
    }
    close(graph);
  }

 private:
  static bool may_join(const SpecInfo& info) {
    return info.redistributes && info.spec->inputs[0]->layout.has_partial() &&
           info.spec->inputs[0]->num_bytes() <= kMaxMemberBytes;
  }
  // The same devices, so that messages go the same ways.
  bool meets(const OperatorSpec& spec) const {
    return spec.inputs[0]->layout.mesh() == of_first_->inputs[0]->layout.mesh() &&
           spec.outputs[0]->layout.mesh() == of_first_->outputs[0]->layout.mesh();
  }
  bool touches_results(const LogicalGraph& graph, const Operator& op) const {
    if (members_ == 0) return false;
    for (uint32_t k = 0; k < uint32_t{op.num_inputs} + op.num_outputs; ++k) {
      if (results_.get(graph.operands[op.first_operand + k] & kMaxOperand) != SlotMap::kNone) return true;
    }
    return false;
  }
  void close(LogicalGraph& graph) {
    for (size_t i = first_; members_ > 1 && i < last_; ++i) graph.operators[i].flags |= kSentWithNext;
    members_ = 0;
  }

  // The bucket under way.
  size_t members_ = 0, first_ = 0, last_ = 0;
  int64_t bytes_ = 0;
  const OperatorSpec* of_first_ = nullptr;
  SlotMap results_;
};

}  // namespace

std::unique_ptr<Pass> make_bucketing_pass() { return std::make_unique<BucketingPass>(); }

}  // namespace dtorch
