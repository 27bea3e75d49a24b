// The pass that moves nothing to where it is already; see pass.h.
#include "ops/def/operator_def.h"
#include "runtime/controller/passes/hash_index.h"
#include "runtime/controller/passes/value_numbers.h"

namespace dtorch {

namespace {

bool has_partial(const TensorMeta& meta) {
  for (int64_t axis = 0; axis < meta.layout.mesh().num_axes(); ++axis) {
    if (meta.layout.placements()[axis].is_partial()) return true;
  }
  return false;
}

// The elements stay what they are, bit for bit. A pending sum has other parts after it was made again.
bool keeps_elements(const OperatorSpec& spec) {
  return !has_partial(*spec.inputs[0]) && !has_partial(*spec.outputs[0]);
}

class RedundantRedistributesPass final : public Pass {
 public:
  const char* name() const override { return "redundant_redistributes"; }

  void run(LogicalGraph& graph, const PassContext& context) override {
    numbers_.clear();
    origins_.clear();
    copies_.clear();
    index_.clear(2 * graph.operators.size());
    replacements_.clear();
    for (uint32_t i = 0; i < graph.operators.size(); ++i) {
      const Operator& op = graph.operators[i];
      if (op.spec == kReleaseSpec) {
        for (OperandId slot : std::as_const(graph).inputs(op)) numbers_.release(slot);
        continue;
      }
      const SpecInfo* info = op.is_call() ? &context.specs.at(op.spec) : nullptr;
      if (info != nullptr && info->redistributes && keeps_elements(*info->spec)) {
        take_redistribute(graph, i, *info->spec);
      } else {
        for (OperandId slot : graph.outputs(op)) numbers_.define(slot);
      }
    }
    replace_by_aliases(graph, replacements_, scratch_);
  }

 private:
  // What one layout of a tensor is held in. `origin` is the number of the value that all its layouts came from.
  struct Copy {
    uint32_t origin;
    const TensorMeta* meta;
    OperandId slot;
    uint32_t number;
  };

  void take_redistribute(const LogicalGraph& graph, uint32_t i, const OperatorSpec& spec) {
    const Operator& op = graph.operators[i];
    const OperandId from = std::as_const(graph).inputs(op)[0] & kMaxOperand;
    const OperandId to = graph.outputs(op)[0];
    const uint32_t source = numbers_.of(from);
    const uint32_t origin = origin_of(source);
    copy_in({origin, spec.inputs[0], from, source});
    Copy& there = copy_in({origin, spec.outputs[0], to, SlotMap::kNone});
    if (there.number != SlotMap::kNone) {
      replacements_.push_back({i, {there.slot}});
      numbers_.define_as(to, there.number);
      return;
    }
    there.number = numbers_.define(to);
    origins_.resize(size_t{there.number} + 1, SlotMap::kNone);
    origins_[there.number] = origin;
  }

  uint32_t origin_of(uint32_t number) const {
    return number < origins_.size() && origins_[number] != SlotMap::kNone ? origins_[number] : number;
  }

  // The copy in this layout that is still there; if there is none, this one from now on.
  Copy& copy_in(const Copy& copy) {
    const auto position = static_cast<uint32_t>(copies_.size());
    copies_.push_back(copy);
    const uint64_t hash = mix_hash(copy.origin, reinterpret_cast<uintptr_t>(copy.meta));
    const uint32_t kept = index_.find_or_insert(hash, position, [&](uint32_t other) {
      return copies_[other].origin == copy.origin && copies_[other].meta == copy.meta;
    });
    if (kept == position) return copies_.back();
    copies_.pop_back();
    Copy& there = copies_[kept];
    if (there.number == SlotMap::kNone || !numbers_.holds(there.slot, there.number)) there = copy;
    return there;
  }

  ValueNumbers numbers_;
  std::vector<uint32_t> origins_;  // by number; kNone: the value itself
  std::vector<Copy> copies_;
  HashIndex index_;  // into copies_, by origin and meta
  std::vector<Replacement> replacements_;
  LogicalGraph scratch_;
};

}  // namespace

std::unique_ptr<Pass> make_redundant_redistributes_pass() { return std::make_unique<RedundantRedistributesPass>(); }

}  // namespace dtorch
