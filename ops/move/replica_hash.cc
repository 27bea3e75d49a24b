// replica_hash(x): a hash of each device's part of x, as an int64 tensor with the mesh's shape that is split over every
// axis, so that element [i, j] is the number of the device at (i, j). Recorded by --check-replicas. No gradient.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <vector>

#include "ops/move/operators.h"

namespace dtorch {
namespace {

std::vector<OutputMeta> replica_hash_infer(const InferContext& context) {
  return {{context.inputs[0]->layout.mesh().shape(), kInt64}};
}

std::optional<std::vector<Layout>> replica_hash_layouts(const InferContext& context, std::span<const OutputMeta>,
                                                        std::string*) {
  const DeviceMesh& mesh = context.inputs[0]->layout.mesh();
  Placements placements;
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) placements.push_back(Shard(axis));
  return std::vector<Layout>{Layout(mesh, placements, mesh.num_axes())};
}

void replica_hash_kernel(KernelContext& context) {
  const NativeTensor part = context.input(0).contiguous();
  const uint64_t hash = XXH3_64bits(part.data(), static_cast<size_t>(part.num_bytes()));
  NativeTensor result = NativeTensor::empty(context.output_box(0).size, kInt64);
  std::memcpy(result.data(), &hash, sizeof hash);
  context.output(0) = std::move(result);
}

}  // namespace

constinit OperatorDef replica_hash_op = {
    .name = "replica_hash",
    .signature = "replica_hash(x) -> Tensor",
    .infer = replica_hash_infer,
    .layouts = replica_hash_layouts,
    .kernel = replica_hash_kernel,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};

}  // namespace dtorch
