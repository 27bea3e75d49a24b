// Numbers for the values of a piece: two slots with the same number hold the same value at that point. For passes.
#pragma once
#include "runtime/controller/passes/pass.h"

namespace dtorch {

class ValueNumbers {
 public:
  void clear() {
    slots_.clear();
    next_ = 0;
  }
  // Of what the slot holds now; a value from before the piece gets a number with its first use.
  uint32_t of(OperandId slot) {
    slot &= kMaxOperand;
    uint32_t number = slots_.get(slot);
    if (number == SlotMap::kNone) {
      number = next_++;
      slots_.set(slot, number);
    }
    return number;
  }
  bool holds(OperandId slot, uint32_t number) const { return slots_.get(slot) == number; }
  uint32_t define(OperandId slot) {
    slots_.set(slot, next_);
    return next_++;
  }
  void define_as(OperandId slot, uint32_t number) { slots_.set(slot, number); }
  void release(OperandId slot) { slots_.erase(slot); }

 private:
  SlotMap slots_;
  uint32_t next_ = 0;
};

// A call that a pass turns into an alias of values which are there already.
struct Replacement {
  uint32_t op_index = 0;
  std::vector<OperandId> values;  // one for each output of the call
};
// The graph with these calls, in ascending order, replaced; scratch is emptied and reused.
void replace_by_aliases(LogicalGraph& graph, const std::vector<Replacement>& replacements, LogicalGraph& scratch);

}  // namespace dtorch
