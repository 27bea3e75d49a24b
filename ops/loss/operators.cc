// The list of the operators of this room.
#include "ops/loss/operators.h"

namespace dtorch {

std::vector<OperatorDef*> loss_operators() { return {}; }

}  // namespace dtorch
