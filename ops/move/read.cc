// read(x): x's boxes travel to the controller, each element from one holder. No outputs. Recorded by Tensor's reads.
// scalars: [number of the read, device whose part is asked for or -1 for the whole tensor].
#include "ops/move/operators.h"

namespace dtorch {
namespace {

std::vector<OutputMeta> read_infer(const InferContext&) { return {}; }

// Any layout is read as it is.
std::optional<std::vector<Layout>> read_layouts(const InferContext&, std::span<const OutputMeta>, std::string*) {
  return std::vector<Layout>{};
}

}  // namespace

constinit OperatorDef read_op = {
    .name = "read",
    .signature = "read(x)",
    .infer = read_infer,
    .layouts = read_layouts,
    .klass = OperatorClass::kRead,
    .lowering = Lowering::kRead,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};

std::vector<OperatorDef*> move_operators() { return {&redistribute_op, &exchange_rows_op, &read_op, &replica_hash_op}; }

}  // namespace dtorch
