#include "ops/def/moves_data.h"

#include "mesh/redistribute_plan.h"
#include "ops/def/row_exchange.h"

namespace dtorch {

bool moves_data(const OperatorSpec& spec, const OperatorRegistry& registry) {
  const Lowering lowering = registry.at(spec.op).lowering;
  if (lowering == Lowering::kExchange) {
    exchange_axis(spec);  // or it isn't one
    return true;
  }
  if (lowering != Lowering::kTransfer) return false;
  DTORCH_CHECK(spec.inputs.size() == 1 && spec.outputs.size() == 1, "a transfer has one input and one output");
  return make_redistribute_plan(spec.inputs[0], spec.outputs[0]).kind == PlanKind::kTransfer;
}

}  // namespace dtorch
