// Attention with a key/value cache, one token or many at a time. positions [B] int64 says how many tokens of each row
// the cache holds already: new token t of row b stands at positions[b] + t.
//   rotary_at(x [B, H, T, D], positions): half-split rotation by the angle of each token's place.
//   cache_append(cache [B, KV, S, D], x [B, KV, T, D], positions): the cache with x at its places; memory is taken over
//     where nobody else holds it.
//   cached_attention(q [B, H, T, D], k, v [B, KV, S, D], positions): each query sees the keys up to its own place.
// Rows and heads may be sharded; key/value heads as in scaled_dot_product_attention. No gradients.
#include <cmath>

#include "ops/nn/attention.h"
#include "ops/nn/cache.h"
#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#endif

namespace dtorch {

extern OperatorDef rotary_at_op, cache_append_op, cached_attention_op;

namespace {

using namespace nn_ops;

constexpr int16_t kBatch = 1, kHeads = 2, kTokens = 3, kWidth = 4, kPlaces = 5;

struct RotaryAtAttrs {
  double theta = 10000.0;
  template <class V>
  void fields(V& v) {
    v("theta", theta);
  }
};
struct ScaleAttrs {
  double scale = 1.0;
  template <class V>
  void fields(V& v) {
    v("scale", scale);
  }
};

void check_positions(const InferContext& context, size_t positions, const Shape& x) {
  if (x.ndim() != 4 || context.shape(positions) != Shape{x[0]} || context.dtype(positions) != kInt64) {
    throw ShapeError(std::string("[") + context.op + "] expected [B, H, T, D] and positions int64 [B], got " + x.str() +
                     " and " + name_of(context.dtype(positions)) + " " + context.shape(positions).str());
  }
}

std::vector<OutputMeta> rotary_infer(const InferContext& context) {
  need_floating(context, 0);
  check_positions(context, 1, context.shape(0));
  if (context.shape(0)[3] % 2 != 0) throw ShapeError("[rotary_at] D of " + context.shape(0).str() + " is odd");
  return {{context.shape(0), context.dtype(0)}};
}
Rule rotary_rule(const InferContext&, std::span<const OutputMeta>) {
  constexpr int16_t kBlocked[] = {kTokens, kWidth};
  const Letters x = {kBatch, kHeads, kTokens, kWidth};
  return rule_of({x, {kBatch}}, {x}, kBlocked, {{0}});
}

std::vector<OutputMeta> append_infer(const InferContext& context) {
  const Shape &cache = context.shape(0), &x = context.shape(1);
  check_positions(context, 2, x);
  need_same_dtype(context, 0, 1);
  if (cache.ndim() != 4 || cache[0] != x[0] || cache[1] != x[1] || cache[3] != x[3])
    throw ShapeError("[cache_append] cache " + cache.str() + " and " + x.str() + " don't fit together");
  return {{cache, context.dtype(0)}};
}
Rule append_rule(const InferContext&, std::span<const OutputMeta>) {
  constexpr int16_t kBlocked[] = {kTokens, kPlaces};
  const Letters cache = {kBatch, kHeads, kPlaces, kWidth};
  return rule_of({cache, {kBatch, kHeads, kTokens, kWidth}, {kBatch}}, {cache}, kBlocked, {{0, 1}});
}

std::vector<OutputMeta> attention_infer(const InferContext& context) {
  const Shape &q = context.shape(0), &k = context.shape(1);
  check_positions(context, 3, q);
  need_same_dtype(context, 0, 1);
  need_same_dtype(context, 0, 2);
  need_same_shape(context, 1, 2);
  if (k.ndim() != 4 || q[0] != k[0] || q[3] != k[3] || k[1] == 0 || q[1] % k[1] != 0)
    throw ShapeError("[cached_attention] q " + q.str() + " and a cache " + k.str() + " don't fit together");
  return {{q, context.dtype(0)}};
}
Rule attention_rule(const InferContext& context, std::span<const OutputMeta>) {
  constexpr int16_t kBlocked[] = {kTokens, kWidth, kPlaces};
  const Letters q = {kBatch, kHeads, kTokens, kWidth};
  int64_t parts = 1;
  for (int8_t axis : context.inputs[1]->layout.axes_of_dim(1)) parts *= context.inputs[1]->layout.mesh().shape()[axis];
  // Heads of keys pair with those of queries where both are split on the same groups.
  const Letters k = {kBatch, parts > 1 && context.shape(1)[1] % parts == 0 ? kHeads : kNoLetter, kPlaces, kWidth};
  return rule_of({q, k, k, {kBatch}}, {q}, kBlocked, {{2}});
}

#if DTORCH_WITH_KERNELS
std::vector<int64_t> places_of(const at::Tensor& positions) {
  const at::Tensor dense = (positions.is_cpu() ? positions : positions.cpu()).contiguous();
  return {dense.const_data_ptr<int64_t>(), dense.const_data_ptr<int64_t>() + dense.numel()};
}

void rotary_kernel(KernelContext& context) {
  const at::Tensor& x = input(context, 0);
  const int64_t tokens = x.size(2), half = x.size(3) / 2;
  const at::TensorOptions wide = x.options().dtype(at::kDouble);
  const at::Tensor places = input(context, 1).to(at::kDouble).unsqueeze(1) + at::arange(tokens, wide);  // [B, T]
  const at::Tensor frequency =
      at::pow(context.attributes<RotaryAtAttrs>().theta, at::arange(half, wide) * (-1.0 / static_cast<double>(half)));
  const at::Tensor angle = (places.unsqueeze(-1) * frequency).unsqueeze(1);  // [B, 1, T, D/2]
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor cosine = angle.cos().to(type), sine = angle.sin().to(type), from = x.to(type);
  const at::Tensor a = from.narrow(3, 0, half), b = from.narrow(3, half, half);
  set_output(context, 0, at::cat({a * cosine - b * sine, b * cosine + a * sine}, 3).to(x.scalar_type()));
}

void append_kernel(KernelContext& context) {
  const at::Tensor& before = input(context, 0);
  const at::Tensor& x = input(context, 1);
  // Asked before there is another handle.
  const bool is_own = context.may_reuse(0) && before.is_contiguous();
  at::Tensor cache = is_own ? before : before.clone(at::MemoryFormat::Contiguous);
  const std::vector<int64_t> places = places_of(input(context, 2));
  for (size_t row = 0; row < places.size(); ++row) {
    if (places[row] < 0 || places[row] + x.size(2) > cache.size(2)) {
      throw RuntimeFault("place " + std::to_string(places[row]) + " and " + std::to_string(x.size(2)) +
                         " tokens leave the cache of " + std::to_string(cache.size(2)) + " places");
    }
    const auto b = static_cast<int64_t>(row);
    cache.select(0, b).narrow(1, places[row], x.size(2)).copy_(x.select(0, b));
  }
  set_output(context, 0, cache);
}

void attention_kernel(KernelContext& context) {
  const at::Tensor& q = input(context, 0);
  at::Tensor out = at::zeros(q.sizes(), q.options());
  std::vector<int64_t> map = attention::head_map(context, 0);
  const std::vector<int64_t> places = places_of(input(context, 3));
  const int64_t tokens = q.size(2);
  for (size_t row = 0; row < places.size() && q.numel() > 0; ++row) {
    const auto b = static_cast<int64_t>(row);
    const int64_t seen = std::min(places[row] + tokens, input(context, 1).size(2));
    const auto part = [&](size_t i) {
      return attention::expand_heads(input(context, i).narrow(0, b, 1).narrow(2, 0, seen), map).select(0, 0);
    };
    at::Tensor scores = at::matmul(q.select(0, b), part(1).transpose(1, 2)) * context.attributes<ScaleAttrs>().scale;
    if (tokens > 1) {
      const at::TensorOptions numbers = q.options().dtype(at::kLong);
      const at::Tensor query = at::arange(tokens, numbers).unsqueeze(1) + places[row];
      scores.masked_fill_(at::arange(seen, numbers).unsqueeze(0) > query, -std::numeric_limits<double>::infinity());
    }
    out.select(0, b).copy_(at::matmul(at::softmax(scores, -1), part(2)));
  }
  set_output(context, 0, out);
}
#endif

SampleInput places(int64_t rows) { return {{rows}, kInt64, SampleFill::kIndices, 3, false}; }

std::vector<Sample> rotary_samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{rotary_at(in[0].detach(), in[1])}; };
  return {
      {.name = "uneven", .inputs = {{{5, 3, 2, 4}, kFloat64, SampleFill::kNormal, 0, false}, places(5)}, .call = call},
      {.name = "one row",
       .inputs = {{{1, 2, 3, 6}, kFloat32, SampleFill::kNormal, 0, false}, places(1)},
       .call = call}};
}
std::vector<Sample> append_samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{cache_append(in[0], in[1], in[2])}; };
  const auto fixed = [](Shape shape) { return SampleInput{shape, kFloat64, SampleFill::kNormal, 0, false}; };
  return {{.name = "uneven", .inputs = {fixed({5, 3, 6, 2}), fixed({5, 3, 2, 2}), places(5)}, .call = call},
          {.name = "one head", .inputs = {fixed({2, 1, 4, 3}), fixed({2, 1, 1, 3}), places(2)}, .call = call}};
}
std::vector<Sample> attention_samples() {
  auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{cached_attention(in[0], in[1], in[2], in[3], 0.5)};
  };
  const auto fixed = [](Shape shape) { return SampleInput{shape, kFloat64, SampleFill::kNormal, 0, false}; };
  return {{.name = "grouped, uneven",
           .inputs = {fixed({3, 6, 2, 4}), fixed({3, 2, 6, 4}), fixed({3, 2, 6, 4}), places(3)},
           .call = call,
           .tolerance = 1e-11},
          {.name = "one token",
           .inputs = {fixed({2, 3, 1, 4}), fixed({2, 3, 5, 4}), fixed({2, 3, 5, 4}), places(2)},
           .call = call,
           .tolerance = 1e-11}};
}

}  // namespace

constinit OperatorDef rotary_at_op = {.name = "rotary_at",
                                      .signature = "rotary_at(x, positions, theta) -> Tensor",
                                      .attributes = attribute_codec<RotaryAtAttrs>(),
                                      .infer = rotary_infer,
                                      .rule = rotary_rule,
                                      .kernel = DTORCH_KERNEL(rotary_kernel),
                                      .samples = rotary_samples,
                                      .linear_in = "x",
                                      .saved_inputs = 0};
constinit OperatorDef cache_append_op = {.name = "cache_append",
                                         .signature = "cache_append(cache, x, positions) -> Tensor",
                                         .infer = append_infer,
                                         .rule = append_rule,
                                         .kernel = DTORCH_KERNEL(append_kernel),
                                         .samples = append_samples,
                                         .linear_in = "cache, x",
                                         .saved_inputs = 0};
constinit OperatorDef cached_attention_op = {.name = "cached_attention",
                                             .signature = "cached_attention(q, k, v, positions, scale) -> Tensor",
                                             .attributes = attribute_codec<ScaleAttrs>(),
                                             .infer = attention_infer,
                                             .rule = attention_rule,
                                             .kernel = DTORCH_KERNEL(attention_kernel),
                                             .samples = attention_samples,
                                             .linear_in = "v",
                                             .saved_inputs = 0};

Tensor rotary_at(const Tensor& x, const Tensor& positions, double theta, Where where) {
  return record(rotary_at_op, RotaryAtAttrs{theta}, {&x, &positions}, where);
}
Tensor cache_append(const Tensor& cache, const Tensor& x, const Tensor& positions, Where where) {
  return record(cache_append_op, NoAttrs{}, {&cache, &x, &positions}, where);
}
Tensor cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& positions, double scale,
                        Where where) {
  return record(cached_attention_op, ScaleAttrs{scale}, {&q, &k, &v, &positions}, where);
}

}  // namespace dtorch
