// The errors of a call that can't be inferred. Private to this room.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/client/placement_error.h"

namespace dtorch {

// Throws MeshError that names the operator and both meshes when the inputs aren't on one mesh.
void check_one_mesh(const OperatorDef& op, std::span<const TensorMeta* const> inputs);

PlacementError placement_error(const OperatorDef& op, std::span<const TensorMeta* const> inputs, MatchFailure failure,
                               const SourceLine& where);

// For rules that see all axes at once: the redistribute of one input that makes the call legal and moves the fewest
// bytes, found by replacing Shards (and Partials) of subsets of axes by Replicate. Empty when there is none.
std::vector<Conversion> cheapest_fix(const InferContext& context, LayoutFn layouts,
                                     std::span<const OutputMeta> outputs);

// For such rules: the rows that hold on one axis (the first of size 2 or more) with Replicate on the others. Empty when
// there are too many to try.
std::vector<std::string> legal_rows_of(const InferContext& context, LayoutFn layouts,
                                       std::span<const OutputMeta> outputs);

// Inside a handler of UserError: rethrows it (its type kept for Shape, DType, Mesh and KeyError) with the call's
// inputs, attributes and source line added to the message.
[[noreturn]] void rethrow_with_call(const OperatorDef& op, const std::string& attributes,
                                    std::span<const TensorMeta* const> inputs, const SourceLine& where);

// x.redistribute({Replicate(), Shard(0)}), with .order when it isn't the default; with `mesh` when that is another one.
std::string redistribute_text(const Layout& layout, const std::string& tensor);

}  // namespace dtorch
