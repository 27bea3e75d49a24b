// The operators of this room: redistribute, read and what --check-replicas records. Not for users, who call methods of
// Tensor.
#pragma once
#include <string>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/client/record.h"

namespace dtorch {

std::vector<OperatorDef*> move_operators();
extern OperatorDef redistribute_op, exchange_rows_op, read_op, replica_hash_op;

}  // namespace dtorch
