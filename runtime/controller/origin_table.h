// OriginTable: which call made the value in each slot of a Graph, as far as pieces have settled. For reports of memory:
// a slot that a device says it holds is looked up here.
#pragma once
#include <vector>

#include "runtime/controller/template.h"

namespace dtorch {

struct OperandOrigin {
  uint32_t spec = kReleaseSpec;  // of a slot that nothing was written to
  uint32_t output = 0;
  SourceLine where;
};

class OriginTable {
 public:
  void note(const LogicalGraph& graph);
  // What has a slot when the calls of a replay have run; its temporaries never had one, unless it was abandoned.
  void note(const ReplayDraft& replay);
  OperandOrigin find(OperandId slot) const { return slot < by_slot_.size() ? by_slot_[slot] : OperandOrigin{}; }

 private:
  void set(OperandId slot, const OperandOrigin& origin);
  OperandOrigin origin_of(const ReplayDraft& replay, OperandId name) const;
  std::vector<OperandOrigin> by_slot_;
};

}  // namespace dtorch
