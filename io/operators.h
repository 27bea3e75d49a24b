// The operators of this room: tensors whose parts every device reads from files itself. Not for users.
#pragma once
#include <vector>

#include "ops/def/operator_def.h"

namespace dtorch {

std::vector<OperatorDef*> io_operators();
// Adds them to OperatorRegistry::global() after the built-in operators. Idempotent.
void register_io_operators();
extern OperatorDef token_batch_op, file_slice_op, hdf5_slice_op, gguf_slice_op;
extern OperatorDef checkpoint_prove_op, checkpoint_open_op, checkpoint_write_op, checkpoint_finish_op;

}  // namespace dtorch
