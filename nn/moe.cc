#include "nn/moe.h"

#include <cmath>

#include "ops/ops.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {
namespace {

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
  // Counts of tokens, and losses that a scale multiplies, are more than 16 bits can hold.
  const DType wide = x.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor shares = sum(to(chosen, wide, where), token_dims, false, {}, where) *
                        (1.0 / static_cast<double>(std::max<int64_t>(1, tokens * config.top_k)));
  result.aux = sum(mul(shares, mean(to(probabilities, wide, where), token_dims, false, where), where), where) *
               static_cast<double>(config.experts);
  // logits - log_softmax(logits) is the log-sum-exp of the row, in every column.
  const Tensor wide_logits = to(logits, wide, where);
  result.z = mean(square(sub(wide_logits, log_softmax(wide_logits, -1, where), where), where), where);

  if (!config.renormalize) gates = dtorch::where(chosen, probabilities, 0.0, where);
  if (config.gate_scale != 1) gates = mul(gates, config.gate_scale, where);
  if (config.capacity_factor > 0) gates = limited(gates, chosen, config, where);
  result.y = expert_parallel(x, gates, w1, w3, w2, where);
  return result;
}

MoE::MoE(const MoeConfig& config, const MoeParallel& parallel, Where where) : config_(config) {
  SourceScope scope(where);
  if (config.dim < 1 || config.inner < 1 || config.experts < 1 || config.shared_inner < 0 || config.top_k < 1 ||
      config.top_k > config.experts) {
    throw UserError("[MoE] sizes must be positive, and top_k (" + std::to_string(config.top_k) + ") 1 to " +
                    std::to_string(config.experts) + ", the experts");
  }
  const DeviceMesh mesh = parallel.mesh ? parallel.mesh : init_device_mesh("cpu", {1});
  const auto made = [&](const std::string& name, const Shape& shape, int64_t fan_in, int64_t tp_dim, bool experts) {
    NoGrad no_grad;
    Placements placements(mesh.num_axes(), Replicate());
    if (experts && !parallel.ep.empty()) placements[mesh.axis(parallel.ep)] = Shard(0);
    if (tp_dim >= 0 && !parallel.tp.empty()) placements[mesh.axis(parallel.tp)] = Shard(tp_dim);
    const Tensor unit = randn(shape, {.mesh = mesh, .placements = placements, .dtype = parallel.dtype}, where);
    return register_parameter(name, unit * (1.0 / std::sqrt(static_cast<double>(fan_in))));
  };
  const int64_t e = config.experts, d = config.dim, f = config.inner, s = config.shared_inner;
  gate = made("gate", {e, d}, d, -1, false);
  w1 = made("w1", {e, f, d}, d, 1, true);
  w3 = made("w3", {e, f, d}, d, 1, true);
  w2 = made("w2", {e, d, f}, f, 2, true);
  if (s == 0) return;
  shared_w1 = made("shared.w1", {s, d}, d, 0, false);
  shared_w3 = made("shared.w3", {s, d}, d, 0, false);
  shared_w2 = made("shared.w2", {d, s}, s, 1, false);
}

MoeResult MoE::forward(const Tensor& x, Where where) const {
  SourceScope scope(where);
  MoeResult result = moe_forward(x, config_, gate.use(where), w1.use(where), w3.use(where), w2.use(where), where);
  result.y = result.y.reduced(where);
  if (!shared_w1.defined()) return result;
  const Tensor inner =
      mul(silu(linear(x, shared_w1.use(where), {}, where), where), linear(x, shared_w3.use(where), {}, where), where);
  result.y = add(result.y, linear(inner, shared_w2.use(where), {}, where).reduced(where), where);
  return result;
}

}  // namespace dtorch::nn
