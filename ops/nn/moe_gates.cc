// topk_gates(p [..., E], k) -> (gates [..., E], chosen [..., E] bool): of each row the k largest probabilities (of
// equal ones the first), divided by their sum; 0 elsewhere. Router of a mixture of experts. All dims but the last may
// be sharded. Gradient: with s the sum over the chosen, dp_e = (g_e - sum_j g_j gates_j) / s for chosen e, 0 elsewhere;
// linear in g.
#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/nn/moe.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {

extern OperatorDef topk_gates_op, topk_gates_grad_op;

namespace {

using namespace nn_ops;

struct GateAttrs {
  int64_t k = 1;
  template <class V>
  void fields(V& v) {
    v("k", k);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  need_floating(context, 0);
  const Shape& p = context.shape(0);
  const int64_t k = context.attributes<GateAttrs>().k;
  if (p.ndim() < 1 || k < 1 || k > p.back()) {
    throw ShapeError("[topk_gates] k is " + std::to_string(k) + " for probabilities of shape " + p.str() +
                     ", allowed is 1 to the size of the last dim");
  }
  return {{p, context.dtype(0)}, {p, kBool}};
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int16_t blocked[] = {static_cast<int16_t>(ndim)};
  return rule_of({letters(ndim)}, {letters(ndim), letters(ndim)}, blocked);
}

// (g, p, chosen) -> dp
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  need_same_shape(context, 0, 1);
  return {{context.shape(1), context.dtype(1)}};
}
Rule grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int16_t blocked[] = {static_cast<int16_t>(ndim)};
  return rule_of({letters(ndim), letters(ndim), letters(ndim)}, {letters(ndim)}, blocked, {{0}});
}

#if DTORCH_WITH_KERNELS
template <class T>
void choose(const T* p, T* gates, bool* chosen, int64_t rows, int64_t experts, int64_t k) {
  std::vector<int64_t> order(static_cast<size_t>(experts));
  for (int64_t row = 0; row < rows; ++row, p += experts, gates += experts, chosen += experts) {
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + k, order.end(),
                      [p](int64_t a, int64_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
    T sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += p[order[static_cast<size_t>(i)]];
    for (int64_t i = 0; i < k; ++i) {
      const int64_t e = order[static_cast<size_t>(i)];
      gates[e] = p[e] / sum;
      chosen[e] = true;
    }
  }
}

template <class T>
void choose_backward(const T* g, const T* p, const bool* chosen, T* dp, int64_t rows, int64_t experts) {
  for (int64_t row = 0; row < rows; ++row, g += experts, p += experts, chosen += experts, dp += experts) {
    T sum = 0, weighted = 0;
    for (int64_t e = 0; e < experts; ++e) {
      if (chosen[e]) sum += p[e];
    }
    for (int64_t e = 0; e < experts; ++e) {
      if (chosen[e]) weighted += g[e] * p[e] / sum;
    }
    for (int64_t e = 0; e < experts; ++e) dp[e] = chosen[e] ? (g[e] - weighted) / sum : T(0);
  }
}

int64_t rows_of(const at::Tensor& x) { return x.numel() == 0 ? 0 : x.numel() / x.size(-1); }
at::ScalarType wide_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

void kernel(KernelContext& context) {
  const at::Tensor& x = input(context, 0);
  const at::Tensor p = x.to(wide_type(x)).contiguous();
  at::Tensor gates = at::zeros(p.sizes(), p.options()), chosen = at::zeros(p.sizes(), p.options().dtype(at::kBool));
  const int64_t k = context.attributes<GateAttrs>().k;
  if (!p.is_cpu()) {
    // A stable sort: of equal ones the first is chosen.
    const at::Tensor best = std::get<1>(p.sort(/*stable=*/true, -1, /*descending=*/true)).narrow(-1, 0, k);
    chosen.scatter_(-1, best, true);
    const at::Tensor kept = p.gather(-1, best);
    gates.scatter_(-1, best, kept.div(kept.sum(-1, /*keepdim=*/true)));
  } else if (p.scalar_type() == at::kDouble) {
    choose(p.const_data_ptr<double>(), gates.mutable_data_ptr<double>(), chosen.mutable_data_ptr<bool>(), rows_of(p),
           p.size(-1), k);
  } else {
    choose(p.const_data_ptr<float>(), gates.mutable_data_ptr<float>(), chosen.mutable_data_ptr<bool>(), rows_of(p),
           p.size(-1), k);
  }
  set_output(context, 0, gates.to(x.scalar_type()));
  set_output(context, 1, chosen);
}

void grad_kernel(KernelContext& context) {
  const at::Tensor& x = input(context, 1);
  const at::ScalarType wide = wide_type(x);
  const at::Tensor g = input(context, 0).to(wide).contiguous(), p = x.to(wide).contiguous(),
                   chosen = input(context, 2).contiguous();
  at::Tensor dp = at::empty(p.sizes(), p.options());
  if (!p.is_cpu()) {
    const at::Tensor sum = p.masked_fill(chosen.logical_not(), 0).sum(-1, /*keepdim=*/true);
    const at::Tensor weighted = g.mul(p).div_(sum).masked_fill_(chosen.logical_not(), 0).sum(-1, /*keepdim=*/true);
    dp = g.sub(weighted).div_(sum).masked_fill_(chosen.logical_not(), 0);
  } else if (wide == at::kDouble) {
    choose_backward(g.const_data_ptr<double>(), p.const_data_ptr<double>(), chosen.const_data_ptr<bool>(),
                    dp.mutable_data_ptr<double>(), rows_of(p), p.size(-1));
  } else {
    choose_backward(g.const_data_ptr<float>(), p.const_data_ptr<float>(), chosen.const_data_ptr<bool>(),
                    dp.mutable_data_ptr<float>(), rows_of(p), p.size(-1));
  }
  set_output(context, 0, dp.to(x.scalar_type()));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  const Tensor p = context.input(0), chosen = context.output(1);
  return {record(topk_gates_grad_op, NoAttrs{}, {&context.grad_output(0), &p, &chosen}, Where::current())};
}

std::vector<Sample> samples() {
  auto call = [](int64_t k) {
    return [k](const std::vector<Tensor>& in) {
      const MoeGates gates = topk_gates(in[0], k);
      return std::vector<Tensor>{gates.gates, gates.chosen};
    };
  };
  const SampleFill distinct = SampleFill::kDistinct;
  return {{.name = "uneven", .inputs = {{{5, 7}, kFloat64, SampleFill::kPositive}}, .call = call(2)},
          {.name = "three dims, one expert", .inputs = {{{2, 3, 1}, kFloat32, SampleFill::kPositive}}, .call = call(1)},
          {.name = "all chosen", .inputs = {{{3, 4}, kFloat32, distinct}}, .call = call(4)}};
}

}  // namespace

constinit OperatorDef topk_gates_op = {.name = "topk_gates",
                                       .signature = "topk_gates(p, k) -> (gates, chosen)",
                                       .attributes = attribute_codec<GateAttrs>(),
                                       .infer = infer,
                                       .rule = rule,
                                       .kernel = DTORCH_KERNEL(kernel),
                                       .gradient = gradient,
                                       .samples = samples,
                                       .saved_outputs = 2};
constinit OperatorDef topk_gates_grad_op = {.name = "topk_gates_grad",
                                            .signature = "topk_gates_grad(g, p, chosen) -> Tensor",
                                            .infer = grad_infer,
                                            .rule = grad_rule,
                                            .kernel = DTORCH_KERNEL(grad_kernel),
                                            .linear_in = "g"};

MoeGates topk_gates(const Tensor& probabilities, int64_t k, Where where) {
  auto [gates, chosen] = record_many<2>(topk_gates_op, GateAttrs{k}, {&probabilities}, where);
  return {gates, chosen};
}

}  // namespace dtorch
