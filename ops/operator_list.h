// The explicit list of DTorch's operators: the one place where an operator becomes known.
#pragma once

namespace dtorch {

// Fills OperatorRegistry::global(), always in the same order. Idempotent; call it before dtorch::run and on every rank
// (dtorch::run does). Any thread.
void register_builtin_operators();

}  // namespace dtorch
