// Ragged rows and their all-to-all along a mesh axis (ops/def/row_exchange.h). For composites of operators; not for
// users.
#pragma once
#include "runtime/client/tensor.h"

namespace dtorch {

struct RaggedRows {
  Tensor rows;    // [P, ..., W], ragged
  Tensor counts;  // [devices, P]
};
// rows Shard(dim) on `axis` instead of what they are there; one of the two is 0. No gradient.
RaggedRows exchange_rows(const RaggedRows& sent, int64_t axis, int64_t dim, const Where& where);

}  // namespace dtorch
