#include "runtime/controller/origin_table.h"

#include <algorithm>

namespace dtorch {

void OriginTable::set(OperandId slot, const OperandOrigin& origin) {
  if (slot >= by_slot_.size()) by_slot_.resize(size_t{slot} + 1);
  by_slot_[slot] = origin;
}

void OriginTable::note(const LogicalGraph& graph) {
  for (size_t i = 0; i < graph.operators.size(); ++i) {
    const Operator& op = graph.operators[i];
    const std::span<const OperandId> inputs = graph.inputs(op), outputs = graph.outputs(op);
    for (uint32_t output = 0; output < outputs.size(); ++output) {
      const bool is_alias = op.spec == kAliasSpec;
      set(outputs[output],
          is_alias ? find(inputs[output] & kMaxOperand) : OperandOrigin{op.spec, output, graph.source_lines[i]});
    }
  }
}

void OriginTable::note(const ReplayDraft& replay) {
  const TemplateBody& body = *replay.of->body;
  for (OperandId name : body.externals(replay.first_call, replay.end_call)) {
    if (!body.is_live_in(name)) set(replay.slots[name], origin_of(replay, name));
  }
  if (!replay.ends || replay.end_call == body.num_calls()) return;
  for (OperandId name : body.temporaries_alive(replay.end_call)) set(replay.slots[name], origin_of(replay, name));
}

OperandOrigin OriginTable::origin_of(const ReplayDraft& replay, OperandId name) const {
  const TemplateBody& body = *replay.of->body;
  const LogicalGraph& calls = body.calls();
  while (!body.is_live_in(name)) {
    const uint32_t call = body.born_in(name);
    const Operator& op = calls.operators[call];
    const std::span<const OperandId> outputs = calls.outputs(op);
    const auto output = static_cast<uint32_t>(std::find(outputs.begin(), outputs.end(), name) - outputs.begin());
    if (op.spec != kAliasSpec) return {op.spec, output, replay.of->source_lines[call]};
    name = calls.inputs(op)[output] & kMaxOperand;
  }
  return find(replay.slots[name]);
}

}  // namespace dtorch
