// User-facing functions that rearrange, repeat, cut or join elements, beyond those of functions.h. Words, argument
// order and defaults are PyTorch's. All throw at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {}  // namespace dtorch
