#include "nn/moe.h"

#include <cmath>

#include "ops/ops.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {
namespace {

// Axes over which experts are split must see every token: x becomes Replicate there.
Tensor gathered_for_experts(const Tensor& x, const Tensor& w1, const Where& where) {
  Placements target = x.placements();
  for (int64_t axis = 0; axis < target.size(); ++axis) {
    if (w1.placements()[axis].is_shard(0)) target[axis] = Replicate();
  }
  return x.redistribute(x.layout().with_placements(target, x.ndim()), where);
}

// Back from the experts: on their axes what is pending becomes the tokens' own placement.
Tensor returned_to_tokens(const Tensor& y, const Tensor& x, const Tensor& w1, const Where& where) {
  Placements target = y.placements();
  for (int64_t axis = 0; axis < target.size(); ++axis) {
    if (w1.placements()[axis].is_shard(0)) target[axis] = x.placements()[axis];
  }
  return y.redistribute(x.layout().with_placements(target, y.ndim()), where);
}

// Gates of tokens that find their expert full become 0. Position among the expert's tokens: a running count in the
// global order of tokens.
Tensor limited(const Tensor& gates, const Tensor& chosen, const MoeConfig& config, const Where& where) {
  const int64_t experts = config.experts, tokens = gates.numel() / experts;
  const double share = static_cast<double>(tokens * config.top_k) / static_cast<double>(experts);
  const auto capacity = static_cast<int64_t>(std::ceil(config.capacity_factor * share));
  const Tensor whole = chosen.full_tensor(where);
  const Tensor places = cumsum(to(reshape(whole, {tokens, experts}, where), kInt64, where), 0, {}, where);
  const Tensor kept =
      reshape(le(places, capacity, where), std::vector<int64_t>(gates.shape().begin(), gates.shape().end()), where);
  return dtorch::where(kept, gates, 0.0, where);
}

}  // namespace

MoeResult moe_forward(const Tensor& x, const MoeConfig& config, const Tensor& gate, const Tensor& w1, const Tensor& w3,
                      const Tensor& w2, Where where) {
  SourceScope scope(where);
  const Tensor logits = linear(x, gate, {}, where);
  const Tensor probabilities = softmax(logits, -1, where);
  auto [gates, chosen] = topk_gates(probabilities, config.top_k, where);

  std::vector<int64_t> token_dims;
  int64_t tokens = 1;
  for (int64_t d = 0; d + 1 < x.ndim(); ++d) {
    token_dims.push_back(d);
    tokens *= x.shape()[d];
  }
  MoeResult result;
  const Tensor shares = sum(to(chosen, x.dtype(), where), token_dims, false, {}, where) *
                        (1.0 / static_cast<double>(std::max<int64_t>(1, tokens * config.top_k)));
  result.aux = sum(mul(shares, mean(probabilities, token_dims, false, where), where), where) *
               static_cast<double>(config.experts);
  // logits - log_softmax(logits) is the log-sum-exp of the row, in every column.
  result.z = mean(square(sub(logits, log_softmax(logits, -1, where), where), where), where);

  if (config.capacity_factor > 0) gates = limited(gates, chosen, config, where);
  const Tensor y =
      moe_experts(gathered_for_experts(x, w1, where), gathered_for_experts(gates, w1, where), w1, w3, w2, where);
  result.y = returned_to_tokens(y, x, w1, where);
  return result;
}

}  // namespace dtorch::nn
