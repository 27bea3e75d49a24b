// User-facing random values beyond rand, randn and randint: the same bits on every layout. Words, argument order and
// defaults are PyTorch's. All throw at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {}  // namespace dtorch
