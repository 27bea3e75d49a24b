// User-facing functions that pick, place and order elements by index. Words, argument order and defaults are PyTorch's;
// indices are global positions, whatever device holds them. All throw ShapeError, DTypeError or PlacementError at the
// call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {}  // namespace dtorch
