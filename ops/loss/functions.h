// User-facing losses. Words and defaults are PyTorch's; means are over the global tensor, however unevenly it is
// sharded. All throw ShapeError, DTypeError or PlacementError at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {}  // namespace dtorch
