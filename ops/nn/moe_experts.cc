// moe_experts(x [..., D], gates [..., E], w1 [E, F, D], w3 [E, F, D], w2 [E, O, F]) -> [..., O]: for each token the sum
// over experts of gate * w2 (silu(w1 x) * w3 x); experts with gate 0 aren't computed. Tokens, experts, F and O may be
// sharded: sharded experts or F give Partial(sum). Linear in gates, in w3 and in w2. Gradient: one operator, linear in
// g; no gradient for gates that are 0, whose experts weren't computed.
#include "ops/nn/moe.h"
#include "ops/nn/moe_local.h"
#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {

extern OperatorDef moe_experts_op, moe_experts_grad_op;

void moe::check_operands(const InferContext& context, size_t x_at) {
  const Shape &x = context.shape(x_at), &gates = context.shape(x_at + 1), &w1 = context.shape(x_at + 2),
              &w3 = context.shape(x_at + 3), &w2 = context.shape(x_at + 4);
  bool fits = x.ndim() >= 1 && gates.ndim() == x.ndim() && w1.ndim() == 3 && w2.ndim() == 3 && w1 == w3;
  for (int64_t d = 0; fits && d + 1 < x.ndim(); ++d) fits = x[d] == gates[d];
  if (!fits || gates.back() != w1[0] || w1[0] != w2[0] || w1[2] != x.back() || w2[2] != w1[1]) {
    throw ShapeError("[" + std::string(context.op) +
                     "] expected x [..., D], gates [..., E], w1 and w3 [E, F, D], w2 [E, O, F], got " + x.str() + ", " +
                     gates.str() + ", " + w1.str() + ", " + w3.str() + ", " + w2.str());
  }
  nn_ops::need_floating(context, x_at);
  for (size_t i = 1; i < 5; ++i) nn_ops::need_same_dtype(context, x_at, x_at + i);
}

namespace {

using namespace nn_ops;

constexpr int16_t kExpert = 100, kInner = 101, kIn = 102, kOut = 103;
constexpr int16_t kBlocked[] = {kIn};

// Letters of [..., last], the leading dims being tokens.
Letters tokens(int64_t ndim, int16_t last) {
  Letters out = letters(ndim - 1);
  out.push_back(last);
  return out;
}

Shape output_shape(const Shape& x, const Shape& w2) {
  Shape shape = x;
  shape[shape.ndim() - 1] = w2[1];
  return shape;
}

std::vector<OutputMeta> infer(const InferContext& context) {
  moe::check_operands(context, 0);
  return {{output_shape(context.shape(0), context.shape(4)), context.dtype(0)}};
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const Letters w1 = {kExpert, kInner, kIn}, w2 = {kExpert, kOut, kInner};
  return rule_of({tokens(ndim, kIn), tokens(ndim, kExpert), w1, w1, w2}, {tokens(ndim, kOut)}, kBlocked,
                 {{1}, {3}, {4}});
}

// (g, x, gates, w1, w3, w2) -> (dx, dgates, dw1, dw3, dw2)
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  moe::check_operands(context, 1);
  std::vector<OutputMeta> outputs;
  for (size_t i = 1; i <= 5; ++i) outputs.push_back({context.shape(i), context.dtype(i)});
  return outputs;
}
Rule grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(1).ndim();
  const Letters w1 = {kExpert, kInner, kIn}, w2 = {kExpert, kOut, kInner}, x = tokens(ndim, kIn),
                gates = tokens(ndim, kExpert);
  return rule_of({tokens(ndim, kOut), x, gates, w1, w1, w2}, {x, gates, w1, w1, w2}, kBlocked, {{0}});
}

#if DTORCH_WITH_KERNELS
// [..., last] as [tokens, last], also where the last dim has no elements here.
at::Tensor rows_of(const at::Tensor& x) {
  int64_t tokens = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) tokens *= x.size(d);
  return x.reshape({tokens, x.size(-1)});
}

// Rows of the tokens that an expert computes.
at::Tensor routed(const at::Tensor& gates, int64_t expert) {
  return at::nonzero(gates.select(1, expert)).reshape({-1});
}

void kernel(KernelContext& context) {
  const at::Tensor x = rows_of(input(context, 0)), gates = rows_of(input(context, 1));
  const at::Tensor y = moe::experts(x, gates, {input(context, 2), input(context, 3), input(context, 4)});
  set_output(context, 0, y.view(output_sizes(context, 0)));
}

void grad_kernel(KernelContext& context) {
  const at::Tensor g = rows_of(input(context, 0)), x = rows_of(input(context, 1)), gates = rows_of(input(context, 2));
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < 5; ++i) out.push_back(at::zeros(output_sizes(context, i), x.options()));
  moe::Gradients sums{out[0].view(x.sizes()), out[1].view(gates.sizes()), out[2], out[3], out[4]};
  moe::experts_grad(g, x, gates, {input(context, 3), input(context, 4), input(context, 5)}, sums);
  for (size_t i = 0; i < 5; ++i) set_output(context, i, out[i]);
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  const Tensor x = context.input(0), gates = context.input(1), w1 = context.input(2), w3 = context.input(3),
               w2 = context.input(4);
  auto [dx, dgates, dw1, dw3, dw2] = record_many<5>(
      moe_experts_grad_op, NoAttrs{}, {&context.grad_output(0), &x, &gates, &w1, &w3, &w2}, Where::current());
  return {dx, dgates, dw1, dw3, dw2};
}

std::vector<Sample> samples() {
  auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{moe_experts(in[0], in[1], in[2], in[3], in[4])};
  };
  auto inputs = [](Shape x, int64_t experts, int64_t inner) {
    Shape gates = x;
    gates[gates.ndim() - 1] = experts;
    const Shape w1 = {experts, inner, x.back()}, w2 = {experts, x.back(), inner};
    std::vector<SampleInput> all;
    for (const Shape& shape : {x, gates, w1, w1, w2}) all.push_back({shape, kFloat64});
    return all;
  };
  return {{.name = "uneven", .inputs = inputs({5, 3}, 3, 5), .call = call, .tolerance = 1e-11},
          {.name = "one token a row", .inputs = inputs({2, 1, 4}, 2, 1), .call = call, .tolerance = 1e-11}};
}

}  // namespace

constinit OperatorDef moe_experts_op = {.name = "moe_experts",
                                        .signature = "moe_experts(x, gates, w1, w3, w2) -> Tensor",
                                        .infer = infer,
                                        .rule = rule,
                                        .kernel = DTORCH_KERNEL(kernel),
                                        .gradient = gradient,
                                        .samples = samples,
                                        .linear_in = "gates, w3, w2"};
constinit OperatorDef moe_experts_grad_op = {
    .name = "moe_experts_grad",
    .signature = "moe_experts_grad(g, x, gates, w1, w3, w2) -> (dx, dgates, dw1, dw3, dw2)",
    .infer = grad_infer,
    .rule = grad_rule,
    .kernel = DTORCH_KERNEL(grad_kernel),
    .linear_in = "g"};

#if DTORCH_WITH_KERNELS
at::Tensor moe::experts(const at::Tensor& x, const at::Tensor& gates, const Weights& weights) {
  at::Tensor y = at::zeros({x.size(0), weights.w2.size(1)}, x.options());
  for (int64_t e = 0; y.numel() > 0 && e < weights.w1.size(0); ++e) {
    const at::Tensor at_rows = routed(gates, e);
    if (at_rows.numel() == 0) continue;
    const at::Tensor in = x.index_select(0, at_rows), gate = gates.select(1, e).index_select(0, at_rows).unsqueeze(1);
    const at::Tensor inner = at::silu(in.matmul(weights.w1[e].t())) * in.matmul(weights.w3[e].t());
    y.index_add_(0, at_rows, inner.matmul(weights.w2[e].t()) * gate);
  }
  return y;
}

void moe::experts_grad(const at::Tensor& g, const at::Tensor& x, const at::Tensor& gates, const Weights& weights,
                       Gradients& sums) {
  const auto& [w1, w3, w2] = weights;
  for (int64_t e = 0; x.size(0) > 0 && e < w1.size(0); ++e) {
    const at::Tensor at_rows = routed(gates, e);
    if (at_rows.numel() == 0) continue;
    const at::Tensor in = x.index_select(0, at_rows), gate = gates.select(1, e).index_select(0, at_rows).unsqueeze(1),
                     arrived = g.index_select(0, at_rows);
    const at::Tensor a = in.matmul(w1[e].t()), b = in.matmul(w3[e].t()), sigmoid = at::sigmoid(a);
    const at::Tensor activated = a * sigmoid, inner = activated * b;
    // By the gate: what the expert gave, times g. By everything else: g times the gate.
    sums.gates.select(1, e).index_add_(0, at_rows, (inner * arrived.matmul(w2[e])).sum(1));
    const at::Tensor weighted = arrived * gate, dinner = weighted.matmul(w2[e]);
    const at::Tensor da = dinner * b * (sigmoid * (1 + a * (1 - sigmoid))), db = dinner * activated;
    sums.x.index_add_(0, at_rows, da.matmul(w1[e]) + db.matmul(w3[e]));
    sums.w1.select(0, e).copy_(da.t().matmul(in));
    sums.w3.select(0, e).copy_(db.t().matmul(in));
    sums.w2.select(0, e).copy_(weighted.t().matmul(inner));
  }
}
#endif

Tensor moe_experts(const Tensor& x, const Tensor& gates, const Tensor& w1, const Tensor& w3, const Tensor& w2,
                   Where where) {
  return record(moe_experts_op, NoAttrs{}, {&x, &gates, &w1, &w3, &w2}, where);
}

}  // namespace dtorch
