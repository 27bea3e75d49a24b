// The debug level that compares replicas (set_check_replicas, --check-replicas). Private to this room.
#pragma once
#include <span>

#include "ops/def/operator_def.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// Waits for the outputs of a call of `op` and compares what the devices hold that must hold the same. Throws
// RuntimeFault that names operator, output, device and line.
void check_replicas(const OperatorDef& op, std::span<const Tensor> outputs, const SourceLine& line, const Where& where);

}  // namespace dtorch
