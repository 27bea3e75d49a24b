// Layers of networks, alone and in rows: norms, attention with masks and groups, experts, caches.
#include "tests/layouts/calls.h"

namespace dtorch::test {
namespace {

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {}) {
  return scaled_dot_product_attention(q, k, v, options);
}

}  // namespace

std::vector<Sample> network_calls() {
  std::vector<Sample> calls = {
      call("softmaxes", {f64({3, 5, 2})},
           [](const In& in) {
             return Out{softmax(in[0], 1), log_softmax(in[0], -1), softmin(in[0], 0)};
           }),
      call(
          "softmax with a dtype", {f32({3, 5})},
          [](const In& in) {
            return Out{softmax(in[0], 1, kFloat64), log_softmax(in[0], 0, kFloat64)};
          },
          1e-5),
      call("softmax of masked rows", {f64({3, 5}), mask({3, 5})},
           [](const In& in) { return Out{softmax(masked_fill(in[0], in[1], -1e30), 1)}; }),
      call("layer norms", {f64({3, 2, 5}), f64({2, 5}), f64({2, 5})},
           [](const In& in) {
             return Out{layer_norm(in[0], {2, 5}, in[1], in[2]), layer_norm(in[0], {5}, {}, {}),
                        layer_norm(in[0], {2, 5}, in[1], {})};
           }),
      call("rms norm", {f64({3, 2, 5}), f64({5})},
           [](const In& in) {
             return Out{rms_norm(in[0], in[1]), rms_norm(in[0], in[1], 0.1)};
           }),
      call("norm, product, residual", {f64({3, 4, 5}), f64({5}), f64({6, 5}), f64({5, 6})},
           [](const In& in) { return Out{in[0] + linear(silu(linear(rms_norm(in[0], in[1]), in[2])), in[3])}; }),
      call("glu", {f64({3, 6})},
           [](const In& in) {
             return Out{glu(in[0]), glu(transpose(in[0], 0, 1), 0)};
           }),
      call("attention", {f64({2, 4, 5, 4}), f64({2, 4, 5, 4}), f64({2, 4, 5, 4})},
           [](const In& in) {
             return Out{attend(in[0], in[1], in[2]), attend(in[0], in[1], in[2], {.is_causal = true, .scale = 0.3})};
           }),
      call("attention in groups", {f64({2, 6, 3, 4}), f64({2, 3, 5, 4}), f64({2, 3, 5, 4})},
           [](const In& in) {
             return Out{attend(in[0], in[1], in[2]), attend(in[0], in[1], in[2], {.is_causal = true})};
           }),
      call("attention of one key head", {f64({2, 4, 3, 4}), f64({2, 1, 3, 4}), f64({2, 1, 3, 4})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.is_causal = true})}; }),
      call("attention of unequal lengths, causal", {f64({1, 2, 3, 4}), f64({1, 2, 7, 4}), f64({1, 2, 7, 4})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.is_causal = true})}; }),
      call("attention of few keys, causal", {f64({1, 2, 7, 4}), f64({1, 2, 3, 4}), f64({1, 2, 3, 4})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.is_causal = true})}; }),
      call("attention of one query", {f64({3, 4, 1, 4}), f64({3, 2, 6, 4}), f64({3, 2, 6, 4})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2])}; }),
      call("attention, keys masked", {f64({2, 4, 3, 4}), f64({2, 2, 5, 4}), f64({2, 2, 5, 4}), mask({2, 1, 1, 5})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.attn_mask = in[3]})}; }),
      call("attention, heads masked", {f64({2, 4, 3, 4}), f64({2, 4, 5, 4}), f64({2, 4, 5, 4}), mask({4, 3, 5})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.attn_mask = in[3]})}; }),
      call("attention, a bias", {f64({2, 4, 3, 4}), f64({2, 4, 5, 4}), f64({2, 4, 5, 4}), f64({1, 4, 3, 5})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.attn_mask = in[3]})}; }),
      call("attention, a bias of queries", {f64({2, 2, 5, 4}), f64({2, 2, 3, 4}), f64({2, 2, 3, 4}), f64({5, 3})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.attn_mask = in[3]})}; }),
      call("attention, nothing seen", {f64({1, 2, 3, 4}), f64({1, 2, 3, 4}), f64({1, 2, 3, 4}), mask({3, 1})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.attn_mask = in[3]})}; }),
      call("attention, mask and dropout", {f64({2, 4, 3, 4}), f64({2, 4, 5, 4}), f64({2, 4, 5, 4}), mask({3, 5})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.attn_mask = in[3], .dropout_p = 0.3})}; }),
      call("attention, bias and dropout", {f64({2, 4, 3, 4}), f64({2, 2, 5, 4}), f64({2, 2, 5, 4}), f64({2, 1, 3, 5})},
           [](const In& in) { return Out{attend(in[0], in[1], in[2], {.attn_mask = in[3], .dropout_p = 0.3})}; }),
      call("self attention", {f64({2, 5, 8}), f64({4, 2, 8}), f64({4, 2, 8}), f64({4, 2, 8})},
           [](const In& in) {
             const auto project = [&](const Tensor& w) { return einsum("btd,hkd->bhtk", in[0], w); };
             return Out{attend(rotary_embedding(project(in[1])), rotary_embedding(project(in[2])), project(in[3]),
                               {.is_causal = true})};
           }),
      call("attention by hand", {f64({2, 3, 4}), f64({2, 5, 4}), f64({2, 5, 4})},
           [](const In& in) { return Out{bmm(softmax(bmm(in[0], transpose(in[1], 1, 2)) * 0.5, -1), in[2])}; }),
      call("experts' gates", {f64({5, 4})}, [](const In& in) { return Out{topk_gates(softmax(in[0], -1), 2).gates}; }),
      call("experts", {f64({5, 3}), unit({5, 4}), f64({4, 6, 3}), f64({4, 6, 3}), f64({4, 2, 6})},
           [](const In& in) { return Out{moe_experts(in[0], in[1], in[2], in[3], in[4])}; }),
      call("a cache", {f64({3, 2, 6, 4}), f64({3, 2, 2, 4}), ids({3}, 4)},
           [](const In& in) { return Out{cache_append(in[0].detach(), in[1].detach(), in[2])}; }),
      call("attention to a cache", {f64({3, 4, 1, 4}), f64({3, 2, 6, 4}), f64({3, 2, 6, 4}), ids({3}, 5)},
           [](const In& in) {
             return Out{cached_attention(in[0].detach(), in[1].detach(), in[2].detach(), in[3], 0.5)};
           }),
      call("tied weights", {ids({2, 4}, 7), f64({7, 5})},
           [](const In& in) { return Out{linear(embedding(in[0], in[1]), in[1])}; }),
      call("norms of tensors", {f64({5, 2}), f64({7})},
           [](const In& in) {
             return Out{sum_of_squares({in[0].detach(), in[1].detach()})};
           }),
  };
  for (Sample& sample : calls) {
    if (sample.tolerance == 0) sample.tolerance = 1e-9;
  }
  return calls;
}

std::vector<Sample> random_calls() {
  return {
      call("dropout", {f64({5, 7})},
           [](const In& in) {
             return Out{dropout(in[0], 0.4), dropout(in[0], 0.4), dropout(in[0], 1.0)};
           }),
      call("dropout of channels", {f64({3, 4, 5}), f64({2, 3, 4, 2})},
           [](const In& in) {
             return Out{dropout1d(in[0], 0.5), dropout2d(in[1], 0.5), feature_dropout(in[0], 0.3)};
           }),
      call("alpha dropout", {f64({5, 7})}, [](const In& in) { return Out{alpha_dropout(in[0], 0.3)}; }),
      call("noise like a tensor", {f64({5, 7})},
           [](const In& in) {
             return Out{rand_like(in[0]), randn_like(in[0]), randint_like(in[0], 2, 9), zeros_like(in[0]),
                        full_like(in[0], 2.5)};
           }),
      call("noise added", {f64({5, 7})}, [](const In& in) { return Out{in[0] + randn_like(in[0]) * 0.1}; }),
      call("bernoulli", {unit({5, 7})},
           [](const In& in) {
             return Out{bernoulli(in[0]), bernoulli(in[0])};
           }),
      call("normal of tensors", {fixed({5, 7}), unit({7})},
           [](const In& in) {
             return Out{normal(in[0], in[1]), normal(1.0, in[1]), normal(in[0], 2.0)};
           }),
      call("poisson", {unit({5, 7})}, [](const In& in) { return Out{poisson(in[0] * 8)}; }),
      call("multinomial", {unit({5, 7})},
           [](const In& in) {
             return Out{multinomial(in[0], 4), multinomial(in[0], 9, true), multinomial(select(in[0], 0, 0), 3)};
           }),
      call("categorical", {unit({5, 7})},
           [](const In& in) {
             return Out{categorical(in[0]), categorical({}, log(in[0]))};
           }),
      call("gumbel_softmax", {f64({5, 7})},
           [](const In& in) {
             return Out{gumbel_softmax(in[0], 0.5), gumbel_softmax(in[0], 2, true)};
           }),
      call("a drawn mask on an expanded dim", {f64({5, 1})},
           [](const In& in) {
             return Out{dropout(expand(in[0], {5, 6}), 0.5)};
           }),
  };
}

}  // namespace dtorch::test
