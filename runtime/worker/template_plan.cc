#include "runtime/worker/template_plan.h"

#include "runtime/graph/transfer_buckets.h"

namespace dtorch {

TemplatePlan::TemplatePlan(std::shared_ptr<const TemplateBody> of,
                           const std::vector<std::unique_ptr<const LoweredSpec>>& graph_specs, size_t num_devices,
                           size_t num_streams)
    : body(std::move(of)) {
  const LogicalGraph& calls = body->calls();
  for (size_t d = 0; d < num_devices; ++d) {
    devices.emplace_back().scalars = calls.scalars;
    devices.back().specs.reserve(calls.operators.size());
    devices.back().plans.resize(calls.operators.size());
  }
  BucketWalk buckets;
  for (uint32_t i = 0; i < calls.operators.size(); ++i) {
    const Operator& op = calls.operators[i];
    const LoweredSpec* spec = nullptr;
    if (op.is_call()) {
      if (op.spec >= graph_specs.size() || graph_specs[op.spec] == nullptr)
        throw DecodeError("call " + std::to_string(i) + " of a template is of an unknown operator spec");
      spec = graph_specs[op.spec].get();
      if (spec->uses_feed && op.num_scalars == 0)
        throw DecodeError("call " + std::to_string(i) + " of a template takes host data without their number");
    }
    const bool goes_on = buckets.goes_on(op, spec != nullptr && spec->moves);
    if (spec != nullptr && (spec->moves || spec->uses_feed)) prepared.push_back({i, spec, goes_on});
    for (size_t d = 0; d < num_devices; ++d)
      devices[d].specs.push_back(spec ? &spec->devices[d * num_streams] : nullptr);
  }
}

uint64_t TemplatePlan::first_scalar_of(uint32_t call, const Replay& replay) const {
  const uint32_t scalar = body->scalars_before(call);
  if (!varying.contains(scalar)) return body->calls().scalars[scalar].bits;
  return replay.scalars[varying.range(body->scalars_before(replay.first_call), scalar).size()].bits;
}

}  // namespace dtorch
