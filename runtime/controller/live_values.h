// LiveValues: which slots of all Graphs hold a value, and of what kind, where the stream is: as the nodes' operand
// tables will be when they are there. Under the sequencer's lock.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "runtime/controller/ledger.h"
#include "runtime/graph/snapshot.h"

namespace dtorch {

// What calls do besides making values.
struct CallEffects {
  int64_t steps = 0;               // optimizer steps
  std::vector<uint64_t> sessions;  // numbers, of calls that are theirs (ops/def/effects.h)
  bool has_effects = false;        // outside, that belong to no session
};

class LiveValues {
 public:
  // In stream order; specs: of the Graph, on its executor's thread.
  CallEffects note(GraphId graph, const LogicalGraph& calls, const SpecTable& specs);
  CallEffects note(GraphId graph, const ReplayDraft& replay);
  void define(GraphId graph, const Template& added, const SpecTable& specs);
  void close(GraphId graph);
  // Ascending by Graph and slot; not while an instance of a template is under way.
  std::vector<LiveValue> all() const;
  // Of all() together, each value counted once.
  uint64_t num_bytes() const;
  bool is_in_instance() const { return !in_instance_.empty(); }

 private:
  struct Value {
    const TensorMeta* meta = nullptr;  // null: empty
    bool is_ragged = false;
  };
  // By name; what is an alias of a live-in has the live-in's kind.
  struct Named {
    Value value;
    OperandId alias_of = kNotAlias;
  };
  struct TemplateCalls {
    std::vector<Named> names;
    std::vector<uint32_t> steps, of_sessions, effects;  // calls
  };
  struct OfGraph {
    std::vector<Value> slots;
    std::map<TemplateId, TemplateCalls> templates;
  };
  static constexpr OperandId kNotAlias = 0xFFFFFFFFu;
  static Value output_of(const SpecInfo& info, size_t output);
  static void set(OfGraph& graph, OperandId slot, Value value);

  std::map<GraphId, OfGraph> graphs_;
  std::set<GraphId> in_instance_;
};

}  // namespace dtorch
