// A pass rewrites a piece before it is sent. Passes are interchangeable parts: each can be left out, none changes
// values. They run on the executor's thread of the piece's Graph.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/controller/spec_table.h"
#include "runtime/graph/fused_runs.h"
#include "runtime/graph/logical_graph.h"
#include "runtime/graph/slot_map.h"
#include "runtime/graph/transfer_buckets.h"

namespace dtorch {

struct PassContext {
  const SpecTable& specs;  // of the piece's Graph
  // A pass may rely on a release for what it does to a call this many records before it, and no more.
  uint32_t lookahead = kAnyDistance;
  static constexpr uint32_t kAnyDistance = 0xFFFFFFFFu;
};

// In a template (template.h) an operator's flags hold, while passes run, the number of the record that it comes from;
// in a piece they are 0. A pass that puts one operator in the place of several takes the last one's.
inline constexpr uint16_t kRecordMask = 0x1FFF;
static_assert((kRecordMask & (kFusedWithNext | kSentWithNext)) == 0);
inline uint32_t record_of(const Operator& op) { return op.flags & kRecordMask; }

class Pass {
 public:
  virtual ~Pass() = default;
  virtual const char* name() const = 0;
  // The operands, scalars and source lines of what is left lie in order, without gaps.
  virtual void run(LogicalGraph& graph, const PassContext& context) = 0;
  // After all passes have run, when no more operators come or go and flags are those that nodes will see.
  virtual void finish(LogicalGraph&, const PassContext&) {}
};
using PassList = std::vector<std::unique_ptr<Pass>>;

// Drops pure operators all of whose results are released in the same piece before any use, and these releases.
std::unique_ptr<Pass> make_dead_operators_pass();
// A pure operator on values that an earlier one had, with the same attributes and scalars: its results become aliases
// of that one's, while these are there.
std::unique_ptr<Pass> make_repeated_operators_pass();
// A redistribution to a layout in which the tensor's elements are there already (A -> B -> A, A -> B twice by two ways)
// becomes an alias. Pending sums are left alone.
std::unique_ptr<Pass> make_redundant_redistributes_pass();
// Moves reductions of pending values up, to right behind what makes them.
std::unique_ptr<Pass> make_early_reductions_pass();
// Turns the release of a value that the piece reads into kLastUse on its last reader's input, so that the operand is
// freed (or handed over) there and the release costs nothing on the wire.
std::unique_ptr<Pass> make_liveness_pass();
// Marks runs of elementwise operators on one shape and layout of which some use others' results (fused_runs.h). A
// result whose last use lies in its run (so says liveness) needs no memory of its own there; others get it.
std::unique_ptr<Pass> make_fusion_pass();

// Marks small reductions between the same devices as buckets (transfer_buckets.h), where no result is used before the
// last of them begins.
std::unique_ptr<Pass> make_bucketing_pass();
// Chooses the compute stream of every call (compute_streams.h). graph: those with different numbers begin on different
// streams.
std::unique_ptr<Pass> make_compute_streams_pass(int32_t num_streams, GraphId graph);

// Prints the piece and changes nothing (--explain). `when`: "before the passes"; static storage, as is the binding for
// the pass's life.
std::unique_ptr<Pass> make_print_pass(const char* when, const DeviceBinding& binding);
// The same of what nodes will see.
std::unique_ptr<Pass> make_print_result_pass(const char* when, const DeviceBinding& binding);
// One line an operator: operands (! is a last use), layouts, bytes that a redistribution moves, source line; of a
// result of the passes also the stream where it isn't the first.
std::string graph_text(const LogicalGraph& graph, const SpecTable& specs, const DeviceBinding& binding,
                       bool with_streams = false);

// The passes that are called `names`, in their order (kPassNames of runtime/base/options_table.h), and with several
// compute streams a device the choice of these. A pass object belongs to one executor.
PassList make_passes(const std::vector<std::string>& names, int32_t num_streams = 1, GraphId graph = 0);

// Operators that a pass moves a call past, or that lie within what it joins, at most: none of them is sent before the
// last one has come.
inline constexpr size_t kPassReach = 4096;

// --- for passes
// ---------------------------------------------------------------------------------------------------------------------

// Marks, while a pass runs, what compact() takes away: an operator, or one operand of a release.
inline constexpr uint16_t kDroppedFlag = 0x8000;
inline constexpr OperandId kDroppedOperand = 0xFFFFFFFFu;
// Takes away what is marked, and releases without operands; moves the rest together.
void compact(LogicalGraph& graph);

}  // namespace dtorch
