// The list of the operators of this room.
#include "ops/image/operators.h"

namespace dtorch {

std::vector<OperatorDef*> image_operators() { return {}; }

}  // namespace dtorch
