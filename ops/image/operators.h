// The operators of this room, and what its files share. Not for users.
#pragma once
#include <vector>

#include "ops/def/operator_def.h"
#include "ops/image/functions.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> image_operators();

}  // namespace dtorch
