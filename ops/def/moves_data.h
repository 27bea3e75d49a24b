// Which operators get a number in the total order of transfers.
#pragma once
#include "ops/def/operator_def.h"

namespace dtorch {

// True when calls of the spec move data between devices: its operator is lowered to an exchange of rows, or to a
// transfer and the plan from its input to its output isn't local. A pure function of the spec; the controller and every
// Sub-Controller count by it, so all draw the same numbers. Makes a plan: callers keep the answer per spec. Throws
// DecodeError for an operator number that isn't registered.
bool moves_data(const OperatorSpec& spec, const OperatorRegistry& registry);

}  // namespace dtorch
