// Operators that by definition combine across a sharded dim (class (b) of distribution.md) ask here before they
// redistribute. Shared by the rooms of operators; not for users.
#pragma once
#include <optional>

#include "runtime/client/tensor.h"

namespace dtorch {

// Throws PlacementError of `op` when set_implicit_redistribution(false) is in force (never in backward). x: the
// operator's input; fix: its layout with which nothing would have to be combined. Nothing happens when that is x's own.
void require_implicit_redistribution(const char* op, const Tensor& x, const Layout& fix, const Where& where);

// x with what is pending reduced to Replicate, but for axes that are Partial(kept): what an extreme value needs, which
// isn't linear. Throws as above.
Tensor reduce_pending(const char* op, const Tensor& x, std::optional<ReduceOp> kept, const Where& where);

// x's layout with Replicate on the axes that shard `dim`, or any dim.
Layout unsharded_layout(const Tensor& x, std::optional<int64_t> dim = {});

}  // namespace dtorch
