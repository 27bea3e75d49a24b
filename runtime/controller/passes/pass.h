// A pass rewrites a piece before it is sent. Passes are interchangeable parts: each can be left out, none changes
// values. They run on the executor's thread of the piece's Graph.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/controller/spec_table.h"
#include "runtime/graph/logical_graph.h"

namespace dtorch {

struct PassContext {
  const SpecTable& specs;  // of the piece's Graph
};

class Pass {
 public:
  virtual ~Pass() = default;
  virtual const char* name() const = 0;
  // The operands, scalars and source lines of what is left lie in order, without gaps.
  virtual void run(LogicalGraph& graph, const PassContext& context) = 0;
};
using PassList = std::vector<std::unique_ptr<Pass>>;

// Drops pure operators all of whose results are released in the same piece before any use, and these releases.
std::unique_ptr<Pass> make_dead_operators_pass();
// Turns the release of a value that the piece reads into kLastUse on its last reader's input, so that the operand is
// freed (or handed over) there and the release costs nothing on the wire.
std::unique_ptr<Pass> make_liveness_pass();

// Prints the piece and changes nothing (--explain). `when`: "before the passes"; static storage, as is the binding for
// the pass's life.
std::unique_ptr<Pass> make_print_pass(const char* when, const DeviceBinding& binding);
// One line an operator: operands (! is a last use), layouts, bytes that a redistribution moves, source line.
std::string graph_text(const LogicalGraph& graph, const SpecTable& specs, const DeviceBinding& binding);

// All passes in their order. A pass object belongs to one executor.
PassList make_default_passes();

// --- for passes
// ---------------------------------------------------------------------------------------------------------------------

// A map from slots to small numbers that is emptied in O(1).
class SlotMap {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  void clear() { ++stamp_; }
  uint32_t get(OperandId slot) const {
    return slot < entries_.size() && entries_[slot].stamp == stamp_ ? entries_[slot].value : kNone;
  }
  void set(OperandId slot, uint32_t value) {
    if (slot >= entries_.size()) entries_.resize(size_t{slot} + slot / 2 + 64);
    entries_[slot] = {stamp_, value};
  }
  void erase(OperandId slot) {
    if (slot < entries_.size()) entries_[slot].stamp = 0;
  }

 private:
  struct Entry {
    uint64_t stamp = 0;
    uint32_t value = kNone;
  };
  std::vector<Entry> entries_;
  uint64_t stamp_ = 1;
};

// Marks, while a pass runs, what compact() takes away: an operator, or one operand of a release.
inline constexpr uint16_t kDroppedFlag = 0x8000;
inline constexpr OperandId kDroppedOperand = 0xFFFFFFFFu;
// Takes away what is marked, and releases without operands; moves the rest together.
void compact(LogicalGraph& graph);

}  // namespace dtorch
