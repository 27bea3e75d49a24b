#include "runtime/controller/live_values.h"

#include <algorithm>

#include "ops/def/effects.h"

namespace dtorch {

namespace {

enum class Effect : uint8_t { kNone, kOwn, kOfSession };

Effect effect_of(const SpecInfo& info, const Operator& op) {
  const OperatorDef& def = OperatorRegistry::global().at(info.spec->op);
  if (def.klass != OperatorClass::kEffect) return Effect::kNone;
  return is_session_operator(def) && op.num_scalars != 0 ? Effect::kOfSession : Effect::kOwn;
}

}  // namespace

LiveValues::Value LiveValues::output_of(const SpecInfo& info, size_t output) {
  const uint32_t ragged = OperatorRegistry::global().at(info.spec->op).ragged_outputs;
  return {info.spec->outputs.at(output), output < 32 && (ragged >> output & 1u) != 0};
}

void LiveValues::set(OfGraph& graph, OperandId slot, Value value) {
  if (slot >= graph.slots.size()) graph.slots.resize(size_t{slot} + slot / 2 + 64);
  graph.slots[slot] = value;
}

CallEffects LiveValues::note(GraphId id, const LogicalGraph& calls, const SpecTable& specs) {
  OfGraph& graph = graphs_[id];
  CallEffects result;
  for (const Operator& op : calls.operators) {
    const std::span<const OperandId> inputs = calls.inputs(op);
    const std::span<const OperandId> outputs = calls.outputs(op);
    std::vector<Value> aliased;
    if (op.spec == kAliasSpec) {
      for (OperandId input : inputs) aliased.push_back(graph.slots.at(input & kMaxOperand));
    }
    for (OperandId input : inputs) {
      if (op.spec == kReleaseSpec || (input & kLastUse) != 0) set(graph, input & kMaxOperand, {});
    }
    if (!op.is_call()) {
      for (size_t i = 0; i < outputs.size(); ++i) set(graph, outputs[i], aliased[i]);
      continue;
    }
    const SpecInfo& info = specs.at(op.spec);
    for (size_t i = 0; i < outputs.size(); ++i) set(graph, outputs[i], output_of(info, i));
    if (info.is_step) ++result.steps;
    const Effect effect = effect_of(info, op);
    if (effect == Effect::kOfSession) result.sessions.push_back(calls.scalars_of(op)[0].bits);
    if (effect == Effect::kOwn) result.has_effects = true;
  }
  return result;
}

void LiveValues::define(GraphId id, const Template& added, const SpecTable& specs) {
  TemplateCalls& made = graphs_[id].templates[added.id];
  made = {};
  const LogicalGraph& calls = added.body->calls();
  made.names.resize(added.body->num_names());
  for (uint32_t i = 0; i < calls.operators.size(); ++i) {
    const Operator& op = calls.operators[i];
    const std::span<const OperandId> outputs = calls.outputs(op);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (op.is_call()) {
        made.names[outputs[k]].value = output_of(specs.at(op.spec), k);
        continue;
      }
      const OperandId of = calls.inputs(op)[k] & kMaxOperand;
      made.names[outputs[k]] = made.names[of];
      if (added.body->is_live_in(of)) made.names[outputs[k]].alias_of = of;
    }
    if (!op.is_call()) continue;
    const SpecInfo& info = specs.at(op.spec);
    if (info.is_step) made.steps.push_back(i);
    const Effect effect = effect_of(info, op);
    if (effect == Effect::kOfSession) made.of_sessions.push_back(i);
    if (effect == Effect::kOwn) made.effects.push_back(i);
  }
}

CallEffects LiveValues::note(GraphId id, const ReplayDraft& replay) {
  OfGraph& graph = graphs_[id];
  const TemplateCalls& of = graph.templates.at(replay.id);
  const TemplateBody& body = *replay.of->body;
  CallEffects result;
  const auto is_here = [&](uint32_t call) { return call >= replay.first_call && call < replay.end_call; };
  result.steps = std::count_if(of.steps.begin(), of.steps.end(), is_here);
  result.has_effects = std::ranges::any_of(of.effects, is_here);
  for (uint32_t call : of.of_sessions) {
    if (!is_here(call)) continue;
    const uint32_t scalar = body.scalars_before(call) - body.scalars_before(replay.first_call);
    result.sessions.push_back(replay.all_scalars.at(scalar).bits);
  }
  if (!replay.ends) {
    in_instance_.insert(id);
    return result;
  }
  in_instance_.erase(id);
  // As on a node: live-ins leave their slots, what is left at the end goes to its slots.
  std::vector<std::pair<OperandId, Value>> left;
  const auto leave = [&](OperandId name) {
    const Named& named = of.names[name];
    const OperandId value_of = body.is_live_in(name) ? name : named.alias_of;
    const Value value = value_of == kNotAlias ? named.value : graph.slots.at(replay.slots[value_of]);
    left.emplace_back(replay.slots[name], value);
  };
  const std::span<const OperandId> externals = body.externals(0, replay.end_call);
  for (OperandId name : externals) {
    if (body.alive_before(name, replay.end_call)) leave(name);
  }
  if (replay.end_call < body.num_calls()) {
    for (OperandId name : body.temporaries_alive(replay.end_call)) leave(name);
  }
  for (OperandId name : externals) {
    if (body.is_live_in(name)) set(graph, replay.slots[name], {});
  }
  for (const auto& [slot, value] : left) set(graph, slot, value);
  return result;
}

void LiveValues::close(GraphId graph) {
  graphs_.erase(graph);
  in_instance_.erase(graph);
}

uint64_t LiveValues::num_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, graph] : graphs_) {
    for (const Value& value : graph.slots) {
      if (value.meta != nullptr) bytes += static_cast<uint64_t>(value.meta->num_bytes());
    }
  }
  return bytes;
}

std::vector<LiveValue> LiveValues::all() const {
  std::vector<LiveValue> values;
  for (const auto& [id, graph] : graphs_) {
    for (size_t slot = 0; slot < graph.slots.size(); ++slot) {
      const Value& value = graph.slots[slot];
      if (value.meta != nullptr) values.push_back({id, static_cast<OperandId>(slot), value.meta, value.is_ragged});
    }
  }
  return values;
}

}  // namespace dtorch
