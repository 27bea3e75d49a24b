// Grouped-query heads in attention kernels: which local key/value head a local query head uses, by global head numbers.
// Empty in builds without kernels.
#pragma once
#include "dtorch/kernel.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <vector>

namespace dtorch::nn_ops {

// Local key/value head of every local query head.
inline std::vector<int64_t> head_map(const Box& q, const Box& k, int64_t num_heads, int64_t num_kv) {
  std::vector<int64_t> map(static_cast<size_t>(q.size[1]));
  for (size_t j = 0; j < map.size(); ++j)
    map[j] = (q.offset[1] + static_cast<int64_t>(j)) * num_kv / num_heads - k.offset[1];
  return map;
}
inline bool is_identity(const std::vector<int64_t>& map, int64_t num_kv) {
  for (size_t j = 0; j < map.size(); ++j) {
    if (map[j] != static_cast<int64_t>(j)) return false;
  }
  return static_cast<int64_t>(map.size()) == num_kv;
}
inline at::Tensor expand_heads(const at::Tensor& k, std::vector<int64_t>& map) {
  if (is_identity(map, k.size(1))) return k;
  return k.index_select(1, at::from_blob(map.data(), {static_cast<int64_t>(map.size())}, at::kLong));
}
inline at::Tensor collapse_heads(const at::Tensor& dk, std::vector<int64_t>& map, at::IntArrayRef kv_sizes) {
  if (is_identity(map, kv_sizes[1])) return dk;
  at::Tensor out = at::zeros(kv_sizes, dk.options());
  for (size_t j = 0; j < map.size(); ++j) out.select(1, map[j]).add_(dk.select(1, static_cast<int64_t>(j)));
  return out;
}

}  // namespace dtorch::nn_ops
#endif
