// User-facing operators of a key/value cache. positions [B] int64: how many tokens of each row the cache holds already;
// new token t of row b stands at positions[b] + t. No gradients. All throw ShapeError, DTypeError or PlacementError at
// the call.
#pragma once
#include "runtime/client/tensor.h"

namespace dtorch {

// x [B, H, T, D], as rotary_embedding with each row's own first position.
Tensor rotary_at(const Tensor& x, const Tensor& positions, double theta = 10000.0, Where where = Where::current());
// The cache [B, KV, S, D] with x [B, KV, T, D] at its places. A cache whose last handle is given up is written in
// place.
Tensor cache_append(const Tensor& cache, const Tensor& x, const Tensor& positions, Where where = Where::current());
// q [B, H, T, D], k and v [B, KV, S, D]: each query sees the places up to its own.
Tensor cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& positions, double scale,
                        Where where = Where::current());

}  // namespace dtorch
