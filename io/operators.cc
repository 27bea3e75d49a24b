#include "io/operators.h"

#include "ops/def/effects.h"

namespace dtorch {

std::vector<OperatorDef*> io_operators() {
  return {&token_batch_op,      &file_slice_op,      &hdf5_slice_op,       &gguf_slice_op,
          &checkpoint_prove_op, &checkpoint_open_op, &checkpoint_write_op, &checkpoint_finish_op};
}

void register_io_operators() {
  OperatorRegistry& registry = OperatorRegistry::global();
  for (OperatorDef* def : io_operators()) {
    if (!registry.find(def->name)) registry.add(*def);
  }
  for (OperatorDef* def : {&checkpoint_open_op, &checkpoint_write_op, &checkpoint_finish_op})
    add_session_operator(*def);
}

}  // namespace dtorch
