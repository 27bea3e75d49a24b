// rms_norm(x [..., D], weight [D]) = x rsqrt(mean(x^2) + eps) weight; layer_norm over the last dims with weight and
// bias. All dims of x but the normalised ones may be sharded. Gradients: dx as x; dweight and dbias Partial where x is
// sharded; linear in g.
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

struct NormAttrs {
  double eps = 1e-5;
  int64_t num_dims = 1;  // normalised, at the end
  bool has_weight = true, has_bias = false;
  template <class V>
  void fields(V& v) {
    v("eps", eps);
    v("num_dims", num_dims);
    v("has_weight", has_weight);
    v("has_bias", has_bias);
  }
};

Shape normalized_shape(const InferContext& context, size_t x, int64_t num_dims) {
  const Shape& shape = context.shape(x);
  if (shape.ndim() < num_dims || num_dims < 1) {
    throw ShapeError(std::string("[") + context.op + "] normalises " + std::to_string(num_dims) + " dims of " +
                     shape.str());
  }
  return Shape(shape.end() - num_dims, shape.end());
}

std::vector<OutputMeta> infer(const InferContext& context) {
  const auto& attributes = context.attributes<NormAttrs>();
  need_floating(context, 0);
  const Shape expected = normalized_shape(context, 0, attributes.num_dims);
  for (size_t i = 1; i < context.inputs.size(); ++i) {
    need_same_dtype(context, 0, i);
    if (!(context.shape(i) == expected)) {
      throw ShapeError(std::string("[") + context.op + "] weight or bias has shape " + context.shape(i).str() +
                       ", expected " + expected.str());
    }
  }
  return {{context.shape(0), context.dtype(0)}};
}

// Letters of x's normalised dims, which no axis may split.
Letters blocked_letters(int64_t ndim, int64_t num_dims) {
  return letters(num_dims, static_cast<int16_t>(ndim - num_dims + 1));
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const Letters blocked = blocked_letters(ndim, context.attributes<NormAttrs>().num_dims);
  std::vector<Letters> in = {letters(ndim)};
  for (size_t i = 1; i < context.inputs.size(); ++i) in.push_back(blocked);
  std::vector<std::vector<size_t>> linear;
  if (in.size() == 2 && context.attributes<NormAttrs>().has_weight) linear = {{1}};
  if (in.size() == 3) linear = {{1, 2}};
  return rule_of(in, {letters(ndim)}, {blocked.data(), static_cast<size_t>(blocked.size())}, linear);
}

// (g, x[, weight]) -> (dx[, dweight][, dbias])
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  const auto& attributes = context.attributes<NormAttrs>();
  std::vector<OutputMeta> out = {{context.shape(1), context.dtype(1)}};
  const Shape own = normalized_shape(context, 1, attributes.num_dims);
  if (attributes.has_weight) out.push_back({own, context.dtype(1)});
  if (attributes.has_bias) out.push_back({own, context.dtype(1)});
  return out;
}

Rule grad_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const int64_t ndim = context.shape(1).ndim();
  const Letters blocked = blocked_letters(ndim, context.attributes<NormAttrs>().num_dims);
  std::vector<Letters> in = {letters(ndim), letters(ndim)}, out = {letters(ndim)};
  if (context.inputs.size() == 3) in.push_back(blocked);
  for (size_t i = 1; i < outputs.size(); ++i) out.push_back(blocked);
  return rule_of(in, out, {blocked.data(), static_cast<size_t>(blocked.size())}, {{0}});
}

#if DTORCH_WITH_KERNELS
void rms_norm_kernel(KernelContext& context) {
  const at::Tensor& x = input(context, 0);
  set_output(context, 0, at::rms_norm(x, {x.size(-1)}, input(context, 1), context.attributes<NormAttrs>().eps));
}

// One pass a row. With r = rsqrt(mean(x^2) + eps), n = x r: dx = r (g w - n mean(g w n)), dw += g n.
template <class T>
void rms_norm_rows(const T* g, const T* x, const T* w, int64_t rows, int64_t width, double eps, T* dx, T* dw) {
  for (int64_t i = 0; i < rows; ++i, g += width, x += width, dx += width) {
    T squares = 0, dot = 0;
    for (int64_t k = 0; k < width; ++k) squares += x[k] * x[k];
    const T r = T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(eps));
    for (int64_t k = 0; k < width; ++k) dot += g[k] * w[k] * x[k];
    const T share = dot * r * r / static_cast<T>(width);
    for (int64_t k = 0; k < width; ++k) {
      dx[k] = r * (g[k] * w[k] - x[k] * share);
      dw[k] += g[k] * x[k] * r;
    }
  }
}

void rms_norm_grad_kernel(KernelContext& context) {
  const at::ScalarType type = input(context, 1).scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor g = input(context, 0).to(wide).contiguous(), x = input(context, 1).to(wide).contiguous();
  at::Tensor w = input(context, 2).to(wide).contiguous();
  at::Tensor dx = at::empty(x.sizes(), x.options()), dw = at::zeros(w.sizes(), w.options());
  const int64_t width = w.numel(), rows = width == 0 ? 0 : x.numel() / width;
  const double eps = context.attributes<NormAttrs>().eps;
  if (!x.is_cpu() && x.numel() > 0) {
    const at::Tensor gw = g.mul(w), r = x.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
    const at::Tensor share = gw.mul(x).mean(-1, /*keepdim=*/true).mul_(r).mul_(r);
    dx = gw.sub(x.mul(share)).mul_(r);
    dw = g.mul(x).mul_(r).reshape({-1, width}).sum(0).view(w.sizes());
  } else if (wide == at::kDouble) {
    rms_norm_rows(g.const_data_ptr<double>(), x.const_data_ptr<double>(), w.const_data_ptr<double>(), rows, width, eps,
                  dx.mutable_data_ptr<double>(), dw.mutable_data_ptr<double>());
  } else {
    rms_norm_rows(g.const_data_ptr<float>(), x.const_data_ptr<float>(), w.const_data_ptr<float>(), rows, width, eps,
                  dx.mutable_data_ptr<float>(), dw.mutable_data_ptr<float>());
  }
  set_output(context, 0, dx.to(type));
  set_output(context, 1, dw.to(type));
}

struct LayerNormInputs {
  std::optional<at::Tensor> weight, bias;
  std::vector<int64_t> sizes;
};
LayerNormInputs layer_norm_inputs(const KernelContext& context, size_t x, size_t first_extra) {
  const auto& attributes = context.attributes<NormAttrs>();
  LayerNormInputs out;
  const auto sizes = input(context, x).sizes();
  out.sizes.assign(sizes.end() - attributes.num_dims, sizes.end());
  if (attributes.has_weight) out.weight = input(context, first_extra++);
  if (attributes.has_bias && first_extra < context.num_inputs()) out.bias = input(context, first_extra);
  return out;
}

void layer_norm_kernel(KernelContext& context) {
  LayerNormInputs extra = layer_norm_inputs(context, 0, 1);
  set_output(context, 0,
             std::get<0>(at::native_layer_norm(input(context, 0), extra.sizes, extra.weight, extra.bias,
                                               context.attributes<NormAttrs>().eps)));
}

void layer_norm_grad_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<NormAttrs>();
  LayerNormInputs extra = layer_norm_inputs(context, 1, 2);
  const at::Tensor& x = input(context, 1);
  if (attributes.has_bias) extra.bias = at::zeros(extra.sizes, x.options());
  auto [y, mean, rstd] = at::native_layer_norm(x, extra.sizes, extra.weight, extra.bias, attributes.eps);
  auto [dx, dw, db] =
      at::native_layer_norm_backward(input(context, 0).contiguous(), x.contiguous(), extra.sizes, mean, rstd,
                                     extra.weight, extra.bias, {true, attributes.has_weight, attributes.has_bias});
  set_output(context, 0, dx);
  size_t next = 1;
  if (attributes.has_weight) set_output(context, next++, dw);
  if (attributes.has_bias) set_output(context, next, db);
}
#endif

std::vector<Tensor> rms_norm_gradient(const GradientContext& context) {
  Tensor x = context.input(0), w = context.input(1);
  auto [dx, dw] = record_many<2>(rms_norm_grad_op, context.attributes<NormAttrs>(), {&context.grad_output(0), &x, &w},
                                 Where::current());
  return {dx, dw};
}

std::vector<Tensor> layer_norm_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<NormAttrs>();
  std::vector<Tensor> in = {context.grad_output(0), context.input(0)};
  if (attributes.has_weight) in.push_back(context.input(1));
  const size_t count = 1 + (attributes.has_weight ? 1 : 0) + (attributes.has_bias ? 1 : 0);
  return record_list(layer_norm_grad_op, attributes, in, count, Where::current());
}

std::vector<Sample> rms_norm_samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{rms_norm(in[0], in[1], 1e-5)}; };
  return {{.name = "uneven", .inputs = {{{5, 7}}, {{7}}}, .call = call},
          {.name = "3-d with a dim of size 1", .inputs = {{{3, 1, 4}, kFloat64}, {{4}, kFloat64}}, .call = call}};
}

std::vector<Sample> layer_norm_samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{layer_norm(in[0], {7}, in[1], in[2])}; };
  auto plain = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{layer_norm(in[0], {1, 4}, {}, {})}; };
  return {{.name = "uneven", .inputs = {{{5, 7}}, {{7}}, {{7}}}, .call = call},
          {.name = "two dims, no weight", .inputs = {{{3, 1, 4}, kFloat64}}, .call = plain}};
}

}  // namespace

constinit OperatorDef rms_norm_op = {.name = "rms_norm",
                                     .signature = "rms_norm(x, weight, eps) -> Tensor",
                                     .attributes = attribute_codec<NormAttrs>(),
                                     .infer = infer,
                                     .rule = rule,
                                     .kernel = DTORCH_KERNEL(rms_norm_kernel),
                                     .gradient = rms_norm_gradient,
                                     .samples = rms_norm_samples,
                                     .linear_in = "weight"};
constinit OperatorDef rms_norm_grad_op = {.name = "rms_norm_grad",
                                          .signature = "rms_norm_grad(g, x, weight, eps) -> (Tensor, Tensor)",
                                          .attributes = attribute_codec<NormAttrs>(),
                                          .infer = grad_infer,
                                          .rule = grad_rule,
                                          .kernel = DTORCH_KERNEL(rms_norm_grad_kernel),
                                          .linear_in = "g"};
constinit OperatorDef layer_norm_op = {.name = "layer_norm",
                                       .signature = "layer_norm(x, normalized_shape, weight, bias, eps) -> Tensor",
                                       .attributes = attribute_codec<NormAttrs>(),
                                       .infer = infer,
                                       .rule = rule,
                                       .kernel = DTORCH_KERNEL(layer_norm_kernel),
                                       .gradient = layer_norm_gradient,
                                       .samples = layer_norm_samples,
                                       .linear_in = "(weight, bias)"};
constinit OperatorDef layer_norm_grad_op = {.name = "layer_norm_grad",
                                            .signature = "layer_norm_grad(g, x, weight) -> (Tensor, Tensor, Tensor)",
                                            .attributes = attribute_codec<NormAttrs>(),
                                            .infer = grad_infer,
                                            .rule = grad_rule,
                                            .kernel = DTORCH_KERNEL(layer_norm_grad_kernel),
                                            .linear_in = "g"};

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, Where where) {
  return record(rms_norm_op, NormAttrs{.eps = eps}, {&x, &weight}, where);
}

Tensor layer_norm(const Tensor& x, const std::vector<int64_t>& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps, Where where) {
  const auto num_dims = static_cast<int64_t>(normalized_shape.size());
  const Shape& shape = x.shape();
  if (num_dims < 1 || num_dims > shape.ndim() ||
      !std::equal(normalized_shape.begin(), normalized_shape.end(), shape.end() - num_dims)) {
    throw at_line(
        ShapeError("[layer_norm] normalized_shape " + Shape(normalized_shape.begin(), normalized_shape.end()).str() +
                   " isn't the end of x's shape " + shape.str()),
        where);
  }
  std::vector<Tensor> in = {x};
  if (weight.defined()) in.push_back(weight);
  if (bias.defined()) in.push_back(bias);
  const NormAttrs attributes{eps, num_dims, weight.defined(), bias.defined()};
  return record_list(layer_norm_op, attributes, in, 1, where)[0];
}

}  // namespace dtorch
