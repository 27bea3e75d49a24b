// scaled_dot_product_attention(q [B, H, T, D], k, v [B, KV, S, D]) = softmax(q k^T scale [+ causal mask]) v, query head
// j with key/value head floor(j KV / H), by global head numbers. Shard(0) everywhere; q, k and v Shard(1) where both
// split on the same groups; or q Shard(1) with k and v Replicate (their gradients are then Partial). The second output
// is the log-sum-exp of each row, for the gradient. Gradient linear in g.
#include <algorithm>
#include <cmath>

#include "ops/nn/attention_heads.h"
#include "ops/nn/context_parallel.h"
#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

struct AttentionAttrs {
  bool is_causal = false;
  double scale = 1.0;
  template <class V>
  void fields(V& v) {
    v("is_causal", is_causal);
    v("scale", scale);
  }
};

constexpr int16_t kBatch = 1, kHeads = 2, kQueries = 3, kWidth = 4, kKeys = 5;

void check(const InferContext& context, size_t q_at) {
  const Shape &q = context.shape(q_at), &k = context.shape(q_at + 1), &v = context.shape(q_at + 2);
  auto shapes = [&] { return "q " + q.str() + ", k " + k.str() + ", v " + v.str(); };
  if (q.ndim() != 4 || k.ndim() != 4 || v.ndim() != 4) {
    throw ShapeError("[scaled_dot_product_attention] expected q [B, H, T, D] and k, v [B, KV, S, D], got " + shapes());
  }
  if (!(k == v) || q[0] != k[0] || q[3] != k[3]) {
    throw ShapeError("[scaled_dot_product_attention] q, k and v don't fit together: " + shapes());
  }
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0) {
    throw ShapeError("[scaled_dot_product_attention] " + std::to_string(q[1]) + " query heads aren't a multiple of " +
                     std::to_string(k[1]) + " key/value heads: " + shapes());
  }
  need_floating(context, q_at);
  need_same_dtype(context, q_at, q_at + 1);
  need_same_dtype(context, q_at, q_at + 2);
}

DType sum_dtype(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

std::vector<OutputMeta> infer(const InferContext& context) {
  check(context, 0);
  const Shape& q = context.shape(0);
  return {{q, context.dtype(0)}, {Shape{q[0], q[1], q[2]}, sum_dtype(context.dtype(0))}};
}

// Devices along all axes that split dim 1 of k.
int64_t parts_of_heads(const TensorMeta& meta) {
  int64_t parts = 1;
  for (int8_t axis : meta.layout.axes_of_dim(1)) parts *= meta.layout.mesh().shape()[axis];
  return parts;
}

// Letters of k and v: their heads pair with q's when all of them can be split on the same groups, else they are whole.
// Where no heads are split yet, they pair only if that holds on any axis, so that what the matcher then suggests is
// legal.
Letters key_letters(const InferContext& context, size_t k_at) {
  const TensorMeta& k = *context.inputs[k_at];
  const int64_t q_parts = parts_of_heads(*context.inputs[k_at - 1]);
  const int64_t kv_parts = std::max(parts_of_heads(k), parts_of_heads(*context.inputs[k_at + 1]));
  const int64_t parts = q_parts == 1 && kv_parts == 1 ? k.layout.mesh().num_devices() : std::max(q_parts, kv_parts);
  const bool same_groups = k.global_shape[1] % parts == 0;
  const bool paired = kv_parts > 1 || q_parts == 1;
  return {kBatch, same_groups && paired ? kHeads : kNoLetter, kKeys, kWidth};
}

constexpr int16_t kBlocked[] = {kQueries, kWidth, kKeys};

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters k = key_letters(context, 1);
  return rule_of({{kBatch, kHeads, kQueries, kWidth}, k, k},
                 {{kBatch, kHeads, kQueries, kWidth}, {kBatch, kHeads, kQueries}}, kBlocked);
}

// (g, q, k, v, out, lse) -> (dq, dk, dv)
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  check(context, 1);
  need_same_shape(context, 0, 1);
  return {
      {context.shape(1), context.dtype(1)}, {context.shape(2), context.dtype(1)}, {context.shape(3), context.dtype(1)}};
}

Rule grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters k = key_letters(context, 2), q = {kBatch, kHeads, kQueries, kWidth};
  return rule_of({q, q, k, k, q, {kBatch, kHeads, kQueries}}, {q, k, k}, kBlocked, {{0}});
}

#if DTORCH_WITH_KERNELS
// The causal mask for T != S: query t sees keys 0 .. t + S - T.
std::optional<at::Tensor> offset_mask(const AttentionAttrs& attributes, int64_t queries, int64_t keys,
                                      const at::Tensor& like) {
  if (!attributes.is_causal || queries == keys) return std::nullopt;
  return at::triu(at::full({queries, keys}, -std::numeric_limits<double>::infinity(), like.options()),
                  keys - queries + 1);
}

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<AttentionAttrs>();
  const at::Tensor& q = input(context, 0);
  std::vector<int64_t> map = head_map(context.input_box(0), context.input_box(1), context.input_meta(0).global_shape[1],
                                      context.input_meta(1).global_shape[1]);
  if (q.numel() == 0 || input(context, 1).size(2) == 0) {
    set_output(context, 0, at::zeros(q.sizes(), q.options()));
    set_output(context, 1,
               at::zeros(output_sizes(context, 1), q.options().dtype(scalar_type(context.output_meta(1).dtype))));
    return;
  }
  at::Tensor k = expand_heads(input(context, 1), map), v = expand_heads(input(context, 2), map);
  const auto mask = offset_mask(attributes, q.size(2), k.size(2), q);
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, attributes.is_causal && !mask, mask,
                                                                    attributes.scale);
  set_output(context, 0, std::move(out));
  set_output(context, 1, std::move(lse));
}

void grad_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<AttentionAttrs>();
  const at::Tensor &g = input(context, 0), &q = input(context, 1);
  std::vector<int64_t> map = head_map(context.input_box(1), context.input_box(2), context.input_meta(1).global_shape[1],
                                      context.input_meta(2).global_shape[1]);
  if (q.numel() == 0 || input(context, 2).size(2) == 0) {
    for (size_t i = 0; i < 3; ++i) set_output(context, i, at::zeros(output_sizes(context, i), q.options()));
    return;
  }
  at::Tensor k = expand_heads(input(context, 2), map), v = expand_heads(input(context, 3), map);
  const auto mask = offset_mask(attributes, q.size(2), k.size(2), q);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      g, q, k, v, input(context, 4), input(context, 5), 0.0, attributes.is_causal && !mask, mask, attributes.scale);
  set_output(context, 0, std::move(dq));
  set_output(context, 1, collapse_heads(dk, map, output_sizes(context, 1)));
  set_output(context, 2, collapse_heads(dv, map, output_sizes(context, 2)));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  Tensor q = context.input(0), k = context.input(1), v = context.input(2), out = context.output(0),
         lse = context.output(1);
  auto [dq, dk, dv] = record_many<3>(sdpa_grad_op, context.attributes<AttentionAttrs>(),
                                     {&context.grad_output(0), &q, &k, &v, &out, &lse}, Where::current());
  return {dq, dk, dv};
}

std::vector<Sample> samples() {
  auto call = [](AttentionOptions options) {
    return [options](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{scaled_dot_product_attention(in[0], in[1], in[2], options)};
    };
  };
  SampleInput q{{3, 6, 5, 4}, kFloat64}, kv{{3, 2, 5, 4}, kFloat64}, one{{2, 3, 1, 4}, kFloat64},
      longer{{2, 3, 6, 4}, kFloat64};
  return {
      {.name = "grouped, causal, uneven", .inputs = {q, kv, kv}, .call = call({.is_causal = true}), .tolerance = 1e-10},
      {.name = "grouped, whole", .inputs = {q, kv, kv}, .call = call({}), .tolerance = 1e-10},
      {.name = "one query, causal",
       .inputs = {one, longer, longer},
       .call = call({.is_causal = true, .scale = 0.7}),
       .tolerance = 1e-10}};
}

}  // namespace

constinit OperatorDef sdpa_op = {.name = "scaled_dot_product_attention",
                                 .signature = "scaled_dot_product_attention(q, k, v, is_causal, scale) -> Tensor",
                                 .attributes = attribute_codec<AttentionAttrs>(),
                                 .infer = infer,
                                 .rule = rule,
                                 .kernel = DTORCH_KERNEL(kernel),
                                 .gradient = gradient,
                                 .samples = samples,
                                 .saved_outputs = 3};
constinit OperatorDef sdpa_grad_op = {
    .name = "scaled_dot_product_attention_grad",
    .signature = "scaled_dot_product_attention_grad(g, q, k, v, out, lse) -> (dq, dk, dv)",
    .attributes = attribute_codec<AttentionAttrs>(),
    .infer = grad_infer,
    .rule = grad_rule,
    .kernel = DTORCH_KERNEL(grad_kernel),
    .linear_in = "g"};

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                    Where where) {
  AttentionAttrs attributes{options.is_causal, 1.0};
  if (options.scale) {
    attributes.scale = *options.scale;
  } else if (q.ndim() > 0 && q.shape().back() > 0) {
    attributes.scale = 1.0 / std::sqrt(static_cast<double>(q.shape().back()));
  }
  if (is_context_parallel(q)) {
    return context_parallel_attention(q, k, v, attributes.is_causal, attributes.scale, where);
  }
  return record_many<2>(sdpa_op, attributes, {&q, &k, &v}, where)[0];
}

}  // namespace dtorch
