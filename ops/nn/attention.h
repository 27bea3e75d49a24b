// What the kinds of scaled dot product attention share: shapes, letters and, in builds with kernels, the pairing of
// heads and the causal mask of a part. Private to this room.
#pragma once
#include <vector>

#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <optional>

#include "dtorch/kernel.h"
#endif

namespace dtorch::attention {

// kWidth: of q and k, over which scores are summed; kValues: of v and the result.
inline constexpr int16_t kBatch = 1, kHeads = 2, kQueries = 3, kWidth = 4, kKeys = 5, kValues = 6;
inline constexpr int16_t kBlocked[] = {kWidth, kKeys};

// Throws unless inputs q_at, q_at + 1, q_at + 2 are q [B, H, T, D] and k, v [B, KV, S, D] of one floating dtype.
void check_operands(const InferContext& context, size_t q_at);
// Of log-sum-exps.
DType sum_dtype(DType dtype);
// Letters of k (its last dim: `width`): heads pair with q's when all of them can be split on the same groups, else they
// are whole.
Letters key_letters(const InferContext& context, size_t k_at, int16_t width);

#if DTORCH_WITH_KERNELS
// Local key/value head of every local query head.
std::vector<int64_t> head_map(const KernelContext& context, size_t q_at);
at::Tensor expand_heads(const at::Tensor& k, std::vector<int64_t>& map);
at::Tensor collapse_heads(const at::Tensor& dk, std::vector<int64_t>& map, at::IntArrayRef kv_sizes);

// This device's queries among all.
struct QueryPart {
  QueryPart(const KernelContext& context, size_t q_at)
      : first(context.input_box(q_at).offset[2]),
        count(context.input_box(q_at).size[2]),
        total(context.input_meta(q_at).global_shape[2]) {}
  // LibTorch's own causal mask is that of T == S queries and keys.
  bool is_plain(int64_t keys) const { return count == total && total == keys; }
  int64_t first, count, total;
};
// 0 where query t sees key s <= t + S - T, else -inf.
at::Tensor causal_mask(const QueryPart& queries, int64_t keys, const at::Tensor& like);
// A part of v's width, filled up with zeros to q's: the kernels want equal ones.
at::Tensor widened(const at::Tensor& v, int64_t width);
#endif

}  // namespace dtorch::attention
