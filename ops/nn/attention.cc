// scaled_dot_product_attention(q [B, H, T, D], k, v [B, KV, S, D]) = softmax(q k^T scale [+ causal mask]) v, query head
// j with key/value head floor(j KV / H), by global head numbers; with a mask or dropout: attention_masked.cc. Shard(0)
// everywhere; q, k and v Shard(1) where both split on the same groups; or q Shard(1) with k and v Replicate (their
// gradients are then Partial); q Shard(2) with whole keys; v's width Shard(3) with q and k whole. Linear in v. The
// second output is the log-sum-exp of each row, for the gradient. Gradient linear in g.
#include <algorithm>
#include <cmath>

#include "ops/nn/attention.h"
#include "ops/nn/attention_kernels.h"
#include "ops/nn/attention_masked.h"
#include "ops/nn/context_parallel.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#endif

namespace dtorch {
namespace attention {

using namespace nn_ops;

void check_operands(const InferContext& context, size_t q_at) {
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

// Devices along all axes that split dim 1 of k.
static int64_t parts_of_heads(const TensorMeta& meta) {
  int64_t parts = 1;
  for (int8_t axis : meta.layout.axes_of_dim(1)) parts *= meta.layout.mesh().shape()[axis];
  return parts;
}

// Where no heads are split yet, they pair only if that holds on any axis, so that what the matcher then suggests is
// legal.
Letters key_letters(const InferContext& context, size_t k_at, int16_t width) {
  const TensorMeta& k = *context.inputs[k_at];
  const int64_t q_parts = parts_of_heads(*context.inputs[k_at - 1]);
  const int64_t kv_parts = std::max(parts_of_heads(k), parts_of_heads(*context.inputs[k_at + 1]));
  const int64_t parts = q_parts == 1 && kv_parts == 1 ? k.layout.mesh().num_devices() : std::max(q_parts, kv_parts);
  const bool one_a_head = context.shape(k_at - 1)[1] == k.global_shape[1];
  const bool same_groups = one_a_head || k.global_shape[1] % parts == 0;
  const bool paired = kv_parts > 1 || q_parts == 1;
  return {kBatch, same_groups && paired ? kHeads : kNoLetter, kKeys, width};
}

#if DTORCH_WITH_KERNELS
std::vector<int64_t> head_map(const KernelContext& context, size_t q_at) {
  const Box &q = context.input_box(q_at), &k = context.input_box(q_at + 1);
  const int64_t num_heads = context.input_meta(q_at).global_shape[1];
  const int64_t num_kv = context.input_meta(q_at + 1).global_shape[1];
  std::vector<int64_t> map(static_cast<size_t>(q.size[1]));
  for (size_t j = 0; j < map.size(); ++j)
    map[j] = (q.offset[1] + static_cast<int64_t>(j)) * num_kv / num_heads - k.offset[1];
  return map;
}
static bool is_identity(const std::vector<int64_t>& map, int64_t num_kv) {
  for (size_t j = 0; j < map.size(); ++j) {
    if (map[j] != static_cast<int64_t>(j)) return false;
  }
  return static_cast<int64_t>(map.size()) == num_kv;
}
at::Tensor expand_heads(const at::Tensor& k, std::vector<int64_t>& map) {
  if (is_identity(map, k.size(1))) return k;
  const at::Tensor heads = at::from_blob(map.data(), {static_cast<int64_t>(map.size())}, at::kLong);
  return k.index_select(1, k.is_cpu() ? heads : heads.to(k.device()));
}
at::Tensor collapse_heads(const at::Tensor& dk, std::vector<int64_t>& map, at::IntArrayRef kv_sizes) {
  if (is_identity(map, kv_sizes[1])) return dk;
  at::Tensor out = at::zeros(kv_sizes, dk.options());
  for (size_t j = 0; j < map.size(); ++j) out.select(1, map[j]).add_(dk.select(1, static_cast<int64_t>(j)));
  return out;
}
at::Tensor causal_mask(const QueryPart& queries, int64_t keys, const at::Tensor& like) {
  return at::triu(at::full({queries.count, keys}, -std::numeric_limits<double>::infinity(), like.options()),
                  queries.first + keys - queries.total + 1);
}
at::Tensor widened(const at::Tensor& v, int64_t width) {
  return v.size(3) == width ? v : at::constant_pad_nd(v, {0, width - v.size(3)});
}
#endif

}  // namespace attention

namespace {

using namespace attention;
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

std::vector<OutputMeta> infer(const InferContext& context) {
  check_operands(context, 0);
  const Shape& q = context.shape(0);
  return {{q, context.dtype(0)}, {Shape{q[0], q[1], q[2]}, sum_dtype(context.dtype(0))}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  Rule rule =
      rule_of({{kBatch, kHeads, kQueries, kWidth}, key_letters(context, 1, kWidth), key_letters(context, 1, kValues)},
              {{kBatch, kHeads, kQueries, kValues}, {kBatch, kHeads, kQueries}}, kBlocked);
  // Every device that holds some of v's width has all of the log-sum-exp.
  for (Row& row : rule.rows) {
    if (row.outputs[1].is_partial()) row.outputs[1] = Replicate();
  }
  rule.rows.push_back({{Replicate(), Replicate(), Partial()}, {Partial(), Replicate()}});
  return rule;
}

// (g, q, k, v, out, lse) -> (dq, dk, dv)
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  check_operands(context, 1);
  need_same_shape(context, 0, 1);
  return {
      {context.shape(1), context.dtype(1)}, {context.shape(2), context.dtype(1)}, {context.shape(3), context.dtype(1)}};
}

Rule grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters k = key_letters(context, 2, kWidth), v = key_letters(context, 2, kValues);
  const Letters q = {kBatch, kHeads, kQueries, kWidth}, out = {kBatch, kHeads, kQueries, kValues};
  return rule_of({out, q, k, v, out, {kBatch, kHeads, kQueries}}, {q, k, v}, kBlocked, {{0}});
}

#if DTORCH_WITH_KERNELS
Sight sight(const KernelContext& context, size_t q_at, int64_t keys, const at::Tensor& like) {
  if (!context.attributes<AttentionAttrs>().is_causal) return {};
  const QueryPart queries(context, q_at);
  if (queries.is_plain(keys)) return {true, {}};
  return {false, causal_mask(queries, keys, like)};
}

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<AttentionAttrs>();
  const at::Tensor& q = input(context, 0);
  std::vector<int64_t> map = head_map(context, 0);
  const int64_t width = input(context, 2).size(3);
  if (q.numel() == 0 || input(context, 1).size(2) == 0) {
    set_output(context, 0, at::zeros(output_sizes(context, 0), q.options()));
    set_output(context, 1,
               at::zeros(output_sizes(context, 1), q.options().dtype(scalar_type(context.output_meta(1).dtype))));
    return;
  }
  const at::Tensor k = expand_heads(input(context, 1), map);
  const at::Tensor v = widened(expand_heads(input(context, 2), map), q.size(3));
  auto [out, lse] = attend(q, k, v, sight(context, 0, k.size(2), q), attributes.scale);
  set_output(context, 0, out.narrow(3, 0, width));
  set_output(context, 1, std::move(lse));
}

void grad_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<AttentionAttrs>();
  const at::Tensor& q = input(context, 1);
  std::vector<int64_t> map = head_map(context, 1);
  const int64_t width = input(context, 3).size(3);
  if (q.numel() == 0 || input(context, 2).size(2) == 0) {
    for (size_t i = 0; i < 3; ++i) set_output(context, i, at::zeros(output_sizes(context, i), q.options()));
    return;
  }
  const at::Tensor k = expand_heads(input(context, 2), map);
  const auto wide = [&](size_t i) { return widened(input(context, i), q.size(3)); };
  const at::Tensor v = widened(expand_heads(input(context, 3), map), q.size(3));
  auto [dq, dk, dv] =
      attend_gradient(wide(0), q, k, v, wide(4), input(context, 5), sight(context, 1, k.size(2), q), attributes.scale);
  set_output(context, 0, std::move(dq));
  set_output(context, 1, collapse_heads(dk, map, output_sizes(context, 1)));
  set_output(context, 2, collapse_heads(dv.narrow(3, 0, width), map, output_sizes(context, 2)));
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
                                 .linear_in = "v",
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
  double scale = options.scale.value_or(1.0);
  if (!options.scale && q.ndim() > 0 && q.shape().back() > 0) {
    scale = 1.0 / std::sqrt(static_cast<double>(q.shape().back()));
  }
  if (options.attn_mask.defined() || options.dropout_p != 0) return masked_attention(q, k, v, options, scale, where);
  const AttentionAttrs attributes{options.is_causal, scale};
  if (is_context_parallel(q, k, v)) {
    const TensorMeta* const inputs[] = {&q.meta(), &k.meta(), &v.meta()};
    try {
      check_operands({sdpa_op.name, inputs, &attributes}, 0);
    } catch (const ShapeError& error) {
      throw at_line(error, where);
    } catch (const DTypeError& error) {
      throw at_line(error, where);
    }
    return context_parallel_attention(q, k, v, options.is_causal, scale, options.ring_order, where);
  }
  return record_many<2>(sdpa_op, attributes, {&q, &k, &v}, where)[0];
}

}  // namespace dtorch
