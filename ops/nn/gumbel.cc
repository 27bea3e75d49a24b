// add_gumbel(x) = x + Gumbel noise, a function of (seed, call, global element number): the sample with the largest sum
// has the probability softmax(x). gumbel_softmax and categorical are compositions of it. Layouts of add_gumbel: same on
// every dim, no Partial. categorical combines over sharded classes: one candidate a device and row travels. Gradient of
// add_gumbel: g. scalars: [seed, call].
#include "ops/create/distributions.h"
#include "ops/create/random_fill.h"
#include "ops/math/functions.h"
#include "ops/move/combine.h"
#include "ops/nn/operators.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"

namespace dtorch {
namespace {

using namespace nn_ops;

std::vector<OutputMeta> infer(const InferContext& context) {
  need_floating(context, 0);
  return {{context.shape(0), context.dtype(0)}};
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  return rule_of({letters(ndim)}, {letters(ndim)}, {});
}

void kernel(KernelContext& context) {
  const PhiloxCall call = create::call_of(context);
  const NativeTensor x = context.input(0).contiguous();
  NativeTensor out = NativeTensor::empty(x.local_shape(), x.dtype());
  visit_dtype(x.dtype(), [&]<class T>() {
    const T* from = reinterpret_cast<const T*>(x.data());
    T* to = reinterpret_cast<T*>(out.data());
    for_each_contiguous_run(context.output_meta(0).global_shape, context.output_box(0),
                            [&](int64_t global, int64_t local, int64_t length) {
                              create::for_each_open_uniform(call, global, length, [&](int64_t e, double u) {
                                const int64_t at = local + (e - global);
                                to[at] = static_cast<T>(static_cast<double>(from[at]) - std::log(-std::log(u)));
                              });
                            });
  });
  context.output(0) = std::move(out);
}

std::vector<Tensor> gradient(const GradientContext& context) { return {context.grad_output(0)}; }

Tensor add_gumbel(const Tensor& x, const Where& where) {
  return record(add_gumbel_op, NoAttrs{}, {&x}, where, {.scalars = create::next_random_scalars()});
}

std::vector<Sample> add_samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{add_gumbel(in[0], Where::current())}; };
  return {{.name = "uneven", .inputs = {{{5, 7}}}, .call = call},
          {.name = "a dim of size 1", .inputs = {{{4, 1, 3}, kFloat64}}, .call = call}};
}
std::vector<Sample> softmax_samples() {
  auto call = [](bool hard, int64_t dim) {
    return [=](const std::vector<Tensor>& in) { return std::vector<Tensor>{gumbel_softmax(in[0], 0.7, hard, dim)}; };
  };
  return {{.name = "soft, uneven", .inputs = {{{5, 3}}}, .call = call(false, -1)},
          {.name = "hard, a dim of size 1", .inputs = {{{4, 1, 3}, kFloat64}}, .call = call(true, 0)}};
}
std::vector<Sample> categorical_samples() {
  return {{.name = "logits, uneven",
           .inputs = {{{5, 7}}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{categorical({}, in[0])}; }},
          {.name = "probabilities, one row",
           .inputs = {{{1, 4}, kFloat64, SampleFill::kPositive}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{categorical(in[0])}; }}};
}

}  // namespace

constinit OperatorDef add_gumbel_op = {.name = "add_gumbel",
                                       .signature = "gumbel_softmax/categorical(x) -> x + noise",
                                       .infer = infer,
                                       .rule = rule,
                                       .kernel = kernel,
                                       .gradient = gradient,
                                       .samples = add_samples,
                                       .saved_inputs = 0};
constinit OperatorDef gumbel_softmax_op = {.name = "gumbel_softmax",
                                           .signature = "gumbel_softmax(logits, tau, hard, dim) -> Tensor",
                                           .samples = softmax_samples};
constinit OperatorDef categorical_op = {.name = "categorical",
                                        .signature = "categorical(probs, logits) -> Tensor",
                                        .samples = categorical_samples,
                                        .placement_class = PlacementClass::kCombines};

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, int64_t dim, Where where) {
  if (!(tau > 0)) {
    throw at_line(UserError("[gumbel_softmax] tau is " + std::to_string(tau) + ", it must be positive"), where);
  }
  SourceScope scope(where);
  const DrawScope draw(logits);
  dim = normalize_dim(dim, logits.ndim(), "gumbel_softmax", where);
  const Tensor soft = softmax(div(add_gumbel(logits, where), tau, where), dim, where);
  if (!hard) return soft;
  const int64_t classes = logits.shape()[dim];
  Tensor numbers = arange(classes, {.mesh = logits.mesh()}, where);
  for (int64_t d = dim + 1; d < logits.ndim(); ++d) numbers = unsqueeze(numbers, -1, where);
  const Tensor chosen = to(eq(argmax(soft, dim, true, where), numbers, where), soft.dtype(), where);
  // The value of the hard one with the gradient of the soft one.
  return add(sub(chosen, soft.detach(), where), soft, where);
}

Tensor categorical(const Tensor& probs, const Tensor& logits, Where where) {
  if (probs.defined() == logits.defined()) {
    throw at_line(UserError("[categorical] give either probs or logits"), where);
  }
  SourceScope scope(where);
  NoGrad no_grad;
  const Tensor& given = probs.defined() ? probs : logits;
  const DrawScope draw(given);
  if (given.ndim() == 0) throw at_line(ShapeError("[categorical] got a scalar, expected [..., C]"), where);
  Tensor x = reduce_pending("categorical", given.detach(), {}, where);
  require_implicit_redistribution("categorical", x, unsharded_layout(x, x.ndim() - 1), where);
  // Halves have too few values for the sums to differ.
  if (x.dtype() == kFloat16 || x.dtype() == kBFloat16) x = to(x, kFloat32, where);
  return argmax(add_gumbel(probs.defined() ? log(x, where) : x, where), -1, false, where);
}

}  // namespace dtorch
