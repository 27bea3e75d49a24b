// User-facing functions of convolutional networks: convolution, pooling, interpolation, batch and group norm. Words,
// argument order and defaults are PyTorch's. All throw ShapeError, DTypeError or PlacementError at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {}  // namespace dtorch
