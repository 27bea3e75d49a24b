// scaled_dot_product_attention(q, k, v[, mask]) with a mask that is broadcast to [B, H, T, S], and with dropout of the
// weights: softmax(q k^T scale + mask) v. Layouts as without a mask (attention.cc); the mask's dims pair with those of
// the scores, keys must not be sharded. Linear in v. Without dropout and where no gradient of the mask is asked the
// kernels are LibTorch's; else the weights are made whole, a part of [B, H, T, S] at a time. Gradient of a floating
// mask: weights (g v^T - sum(g out)), summed over the dims that were broadcast. Linear in g. scalars: [seed, call].
#include "ops/nn/attention_masked.h"

#include "ops/create/philox.h"
#include "ops/nn/attention.h"
#include "ops/nn/attention_kernels.h"
#include "runtime/client/call_error.h"
#include "runtime/client/draw_scope.h"
#include "runtime/client/graph_core.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sum.h>
#endif

namespace dtorch {

extern OperatorDef masked_sdpa_op, masked_sdpa_grad_op;

namespace {

using namespace attention;
using namespace nn_ops;

struct MaskedAttrs {
  bool is_causal = false, has_mask = false, mask_gradient = false;
  double scale = 1.0, dropout_p = 0.0;
  template <class V>
  void fields(V& v) {
    v("is_causal", is_causal);
    v("has_mask", has_mask);
    v("mask_gradient", mask_gradient);
    v("scale", scale);
    v("dropout_p", dropout_p);
  }
};

// [B, H, T, S] of the operands from q_at on.
Shape scores_shape(const InferContext& context, size_t q_at) {
  const Shape &q = context.shape(q_at), &k = context.shape(q_at + 1);
  return {q[0], q[1], q[2], k[2]};
}

void check_mask(const InferContext& context, size_t q_at, size_t mask_at) {
  const Shape scores = scores_shape(context, q_at), &mask = context.shape(mask_at);
  if (context.dtype(mask_at) != kBool && context.dtype(mask_at) != context.dtype(q_at)) {
    throw DTypeError("[scaled_dot_product_attention] attn_mask is " + std::string(name_of(context.dtype(mask_at))) +
                     ", allowed are bool and " + name_of(context.dtype(q_at)) + ", as q");
  }
  bool fits = mask.ndim() <= 4;
  for (int64_t d = 0; fits && d < mask.ndim(); ++d) {
    fits = mask[d] == 1 || mask[d] == scores[4 - mask.ndim() + d];
  }
  if (!fits) {
    throw ShapeError("[scaled_dot_product_attention] attn_mask has shape " + mask.str() +
                     ", expected one that broadcasts to " + scores.str() + " [B, H, T, S]");
  }
}

Letters mask_letters(const InferContext& context, size_t q_at, size_t mask_at) {
  constexpr int16_t kOfScores[] = {kBatch, kHeads, kQueries, kKeys};
  const Shape scores = scores_shape(context, q_at), &mask = context.shape(mask_at);
  Letters letters;
  for (int64_t d = 0; d < mask.ndim(); ++d) {
    const int64_t at = 4 - mask.ndim() + d;
    letters.push_back(mask[d] == scores[at] ? kOfScores[at] : kNoLetter);
  }
  return letters;
}

std::vector<OutputMeta> infer(const InferContext& context) {
  check_operands(context, 0);
  if (context.attributes<MaskedAttrs>().has_mask) check_mask(context, 0, 3);
  const Shape& q = context.shape(0);
  return {{q, context.dtype(0)}, {Shape{q[0], q[1], q[2]}, sum_dtype(context.dtype(0))}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  std::vector<Letters> in = {
      {kBatch, kHeads, kQueries, kWidth}, key_letters(context, 1, kWidth), key_letters(context, 1, kValues)};
  if (context.inputs.size() == 4) in.push_back(mask_letters(context, 0, 3));
  Rule rule = rule_of(in, {{kBatch, kHeads, kQueries, kValues}, {kBatch, kHeads, kQueries}}, kBlocked);
  for (Row& row : rule.rows) {
    if (row.outputs[1].is_partial()) row.outputs[1] = Replicate();
  }
  Row linear{std::vector<Placement>(in.size()), {Partial(), Replicate()}};
  linear.inputs[2] = Partial();
  rule.rows.push_back(linear);
  return rule;
}

// (g, q, k, v, out, lse[, mask]) -> (dq, dk, dv[, dmask])
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  check_operands(context, 1);
  need_same_shape(context, 0, 1);
  std::vector<OutputMeta> out;
  for (size_t i = 1; i < 4; ++i) out.push_back({context.shape(i), context.dtype(1)});
  if (context.attributes<MaskedAttrs>().mask_gradient) out.push_back({context.shape(6), context.dtype(6)});
  return out;
}

Rule grad_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Letters k = key_letters(context, 2, kWidth), v = key_letters(context, 2, kValues);
  const Letters q = {kBatch, kHeads, kQueries, kWidth}, out = {kBatch, kHeads, kQueries, kValues};
  std::vector<Letters> in = {out, q, k, v, out, {kBatch, kHeads, kQueries}}, gradients = {q, k, v};
  if (context.inputs.size() == 7) in.push_back(mask_letters(context, 1, 6));
  if (outputs.size() == 4) gradients.push_back(in.back());
  return rule_of(in, gradients, kBlocked, {{0}});
}

#if DTORCH_WITH_KERNELS
// What is added to the scores of this device's part: [.., .., T or 1, S or 1], or nothing.
std::optional<at::Tensor> added_mask(const KernelContext& context, size_t q_at, size_t mask_at, int64_t keys) {
  const auto& attributes = context.attributes<MaskedAttrs>();
  const at::Tensor& q = input(context, q_at);
  std::optional<at::Tensor> added;
  if (attributes.has_mask) {
    at::Tensor mask = input(context, mask_at);
    if (mask.scalar_type() == at::kBool) {
      mask = at::zeros(mask.sizes(), q.options())
                 .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity());
    }
    while (mask.dim() < 4) mask = mask.unsqueeze(0);
    added = mask;
  }
  if (attributes.is_causal) added = causal_mask(QueryPart(context, q_at), keys, q).unsqueeze(0).unsqueeze(0);
  return added;
}

// Weights before dropout; rows that see no key are 0.
at::Tensor weights_of(const at::Tensor& q, const at::Tensor& k, const std::optional<at::Tensor>& mask, double scale) {
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)).mul_(scale);
  if (mask) scores.add_(*mask);
  const at::Tensor unseen = scores.amax(3, /*keepdim=*/true).eq(-std::numeric_limits<double>::infinity());
  return at::softmax(scores, 3).masked_fill_(unseen, 0);
}

// 0 or 1 / (1 - p) for every weight of this device's part.
at::Tensor dropout_mask(const KernelContext& context, size_t q_at, const at::Tensor& weights) {
  const double p = context.attributes<MaskedAttrs>().dropout_p;
  const Shape &q = context.input_meta(q_at).global_shape, &k = context.input_meta(q_at + 1).global_shape;
  const Box& part = context.input_box(q_at);
  const Box box{{part.offset[0], part.offset[1], part.offset[2], 0}, {part.size[0], part.size[1], part.size[2], k[2]}};
  const PhiloxCall call{context.scalar(0).bits, context.scalar(1).bits};
  const auto limit = static_cast<uint64_t>((1 - p) * 4294967296.0);
  at::Tensor mask = at::zeros(weights.sizes(), at::kDouble);
  double* to = mask.mutable_data_ptr<double>();
  for_each_contiguous_run(Shape{q[0], q[1], q[2], k[2]}, box, [&](int64_t global, int64_t local, int64_t length) {
    call.for_each_word(global, length, [&](int64_t e, uint32_t word) {
      if (word < limit) to[local + (e - global)] = 1 / (1 - p);
    });
  });
  return mask.to(weights.options());
}

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MaskedAttrs>();
  const at::Tensor& q = input(context, 0);
  const int64_t width = input(context, 2).size(3);
  std::vector<int64_t> map = head_map(context, 0);
  const at::TensorOptions sums = q.options().dtype(scalar_type(context.output_meta(1).dtype));
  if (q.numel() == 0 || input(context, 1).size(2) == 0) {
    set_output(context, 0, at::zeros(output_sizes(context, 0), q.options()));
    set_output(context, 1, at::zeros(output_sizes(context, 1), sums));
    return;
  }
  const at::Tensor k = expand_heads(input(context, 1), map), v = expand_heads(input(context, 2), map);
  const std::optional<at::Tensor> mask = added_mask(context, 0, 3, k.size(2));
  if (attributes.dropout_p == 0) {
    auto [out, lse] = attend(q, k, widened(v, q.size(3)), {false, mask}, attributes.scale);
    set_output(context, 0, out.narrow(3, 0, width));
    set_output(context, 1, std::move(lse));
    return;
  }
  at::Tensor weights = weights_of(q, k, mask, attributes.scale);
  weights.mul_(dropout_mask(context, 0, weights));
  set_output(context, 0, at::matmul(weights, v));
  // The gradient makes the weights again.
  set_output(context, 1, at::zeros(output_sizes(context, 1), sums));
}

// dmask: `full` [B, H, T, S] summed over the dims that the mask was broadcast along.
at::Tensor fitted(at::Tensor full, at::IntArrayRef mask_sizes) {
  const auto ndim = static_cast<int64_t>(mask_sizes.size());
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < 4; ++d) {
    const int64_t at = d - (4 - ndim);
    if (at < 0 || mask_sizes[static_cast<size_t>(at)] != full.size(d)) dims.push_back(d);
  }
  if (!dims.empty()) full = at::sum(full, dims, /*keepdim=*/true);
  return full.reshape(mask_sizes);
}

void whole_gradient(KernelContext& context, std::vector<int64_t>& map) {
  const auto& attributes = context.attributes<MaskedAttrs>();
  const at::Tensor &g = input(context, 0), &q = input(context, 1);
  const at::Tensor k = expand_heads(input(context, 2), map), v = expand_heads(input(context, 3), map);
  const at::Tensor weights = weights_of(q, k, added_mask(context, 1, 6, k.size(2)), attributes.scale);
  at::Tensor kept = weights, slope = at::matmul(g, v.transpose(2, 3));
  if (attributes.dropout_p != 0) {
    const at::Tensor mask = dropout_mask(context, 1, weights);
    kept = weights.mul(mask);
    slope.mul_(mask);
  }
  const at::Tensor total = at::sum(g.mul(input(context, 4)), {3}, /*keepdim=*/true);
  const at::Tensor of_scores = slope.sub_(total).mul_(weights);
  set_output(context, 0, at::matmul(of_scores, k).mul_(attributes.scale));
  set_output(
      context, 1,
      collapse_heads(at::matmul(of_scores.transpose(2, 3), q).mul_(attributes.scale), map, output_sizes(context, 1)));
  set_output(context, 2, collapse_heads(at::matmul(kept.transpose(2, 3), g), map, output_sizes(context, 2)));
  if (attributes.mask_gradient) set_output(context, 3, fitted(of_scores, output_sizes(context, 3)));
}

void grad_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MaskedAttrs>();
  const at::Tensor& q = input(context, 1);
  std::vector<int64_t> map = head_map(context, 1);
  if (q.numel() == 0 || input(context, 2).size(2) == 0) {
    for (size_t i = 0; i < context.num_outputs(); ++i) {
      set_output(context, i, at::zeros(output_sizes(context, i), q.options()));
    }
    return;
  }
  if (attributes.dropout_p != 0 || attributes.mask_gradient) return whole_gradient(context, map);
  const int64_t width = input(context, 3).size(3);
  const at::Tensor k = expand_heads(input(context, 2), map);
  const at::Tensor v = widened(expand_heads(input(context, 3), map), q.size(3));
  auto [dq, dk, dv] =
      attend_gradient(widened(input(context, 0), q.size(3)), q, k, v, widened(input(context, 4), q.size(3)),
                      input(context, 5), {false, added_mask(context, 1, 6, k.size(2))}, attributes.scale);
  set_output(context, 0, std::move(dq));
  set_output(context, 1, collapse_heads(dk, map, output_sizes(context, 1)));
  set_output(context, 2, collapse_heads(dv.narrow(3, 0, width), map, output_sizes(context, 2)));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  MaskedAttrs attributes = context.attributes<MaskedAttrs>();
  std::vector<Tensor> in = {context.grad_output(0), context.input(0),  context.input(1),
                            context.input(2),       context.output(0), context.output(1)};
  if (attributes.has_mask) in.push_back(context.input(3));
  attributes.mask_gradient = attributes.has_mask && context.needs_grad(3);
  std::vector<Scalar> scalars;
  if (attributes.dropout_p != 0) scalars = {context.scalar(0), context.scalar(1)};
  std::vector<Tensor> gradients = record_list(masked_sdpa_grad_op, attributes, in, attributes.mask_gradient ? 4 : 3,
                                              Where::current(), {.scalars = scalars});
  gradients.resize(context.num_inputs());
  return gradients;
}

std::vector<Sample> samples() {
  auto call = [](AttentionOptions options) {
    return [options](const std::vector<Tensor>& in) {
      AttentionOptions own = options;
      if (in.size() > 3) own.attn_mask = in[3];
      return std::vector<Tensor>{scaled_dot_product_attention(in[0], in[1], in[2], own)};
    };
  };
  SampleInput q{{2, 4, 3, 4}, kFloat64}, kv{{2, 2, 5, 4}, kFloat64}, one{{1, 3, 2, 4}, kFloat64};
  return {{.name = "bool mask of keys, grouped",
           .inputs = {q, kv, kv, {{3, 5}, kBool, SampleFill::kBool, 0, false}},
           .call = call({}),
           .tolerance = 1e-10},
          {.name = "floating mask of heads",
           .inputs = {one, one, one, {{3, 1, 2}, kFloat64}},
           .call = call({.scale = 0.7}),
           .tolerance = 1e-10},
          {.name = "dropout, causal",
           .inputs = {q, kv, kv},
           .call = call({.is_causal = true, .dropout_p = 0.4}),
           .tolerance = 1e-10}};
}

}  // namespace

constinit OperatorDef masked_sdpa_op = {
    .name = "masked_attention",
    .signature = "scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal, scale) -> Tensor",
    .attributes = attribute_codec<MaskedAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
    .linear_in = "v",
    .saved_outputs = 3};
constinit OperatorDef masked_sdpa_grad_op = {
    .name = "masked_attention_grad",
    .signature = "scaled_dot_product_attention_grad(g, q, k, v, out, lse, mask) -> (dq, dk, dv, dmask)",
    .attributes = attribute_codec<MaskedAttrs>(),
    .infer = grad_infer,
    .rule = grad_rule,
    .kernel = DTORCH_KERNEL(grad_kernel),
    .linear_in = "g",
};

namespace attention {

Tensor masked_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                        double scale, const Where& where) {
  const std::string op = "[scaled_dot_product_attention] ";
  if (!(options.dropout_p >= 0 && options.dropout_p <= 1)) {
    throw at_line(UserError(op + "dropout_p is " + std::to_string(options.dropout_p) + ", allowed 0 to 1"), where);
  }
  const Tensor& mask = options.attn_mask;
  if (mask.defined() && options.is_causal) {
    throw at_line(UserError(op + "is_causal and attn_mask are both given; put the causal mask into attn_mask"), where);
  }
  const MaskedAttrs attributes{options.is_causal, mask.defined(), false, scale, options.dropout_p};
  const DrawScope draw(q);
  std::vector<Scalar> scalars;
  if (options.dropout_p != 0) {
    const RandomState random = current_graph().next_random_call();
    scalars = {{random.seed}, {random.next_call}};
  }
  return mask.defined()
             ? record_many<2>(masked_sdpa_op, attributes, {&q, &k, &v, &mask}, where, {.scalars = scalars})[0]
             : record_many<2>(masked_sdpa_op, attributes, {&q, &k, &v}, where, {.scalars = scalars})[0];
}

}  // namespace attention
}  // namespace dtorch
