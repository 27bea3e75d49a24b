// User-facing elementwise functions beyond the everyday ones of functions.h: trigonometry, rounding, bits, tests of
// floats, activations. Words, argument order, defaults, broadcasting and dtype promotion are PyTorch's. All throw at
// the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {}  // namespace dtorch
