// The list of the operators of this room.
#include "ops/index/operators.h"

namespace dtorch {

std::vector<OperatorDef*> index_operators() { return {}; }

}  // namespace dtorch
