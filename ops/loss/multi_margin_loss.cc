// multi_margin_loss(input [N, C], target [N][, weight [C]]): sum over j != target of max(0, margin - input[target] +
// input[j])^p weight[target] / C of each row, then a sum or mean. N may be sharded; C must not. Linear in weight.
// Gradient of input: LibTorch's own kernel; linear in g. targets and weight get none.
#include "ops/loss/operators.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/multi_margin_loss.h>
#include <ATen/ops/multi_margin_loss_backward.h>
#include <ATen/ops/multi_margin_loss_backward_native.h>
#include <ATen/ops/multi_margin_loss_native.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {
namespace {

using namespace loss;
using namespace nn_ops;

struct MarginAttrs {
  int64_t p = 1;
  double margin = 1.0;
  template <class V>
  void fields(V& v) {
    v("p", p);
    v("margin", margin);
  }
};

constexpr int16_t kRows = 1, kClasses = 2;
constexpr int16_t kBlocked[] = {kClasses};

void check(const InferContext& context, size_t x) {
  const Shape &input = context.shape(x), &target = context.shape(x + 1);
  need_floating(context, x);
  if (!is_integral(context.dtype(x + 1))) {
    throw DTypeError("[multi_margin_loss] targets are " + std::string(name_of(context.dtype(x + 1))) +
                     ", allowed are integers");
  }
  if (input.ndim() != 2 || target != Shape{input[0]} || input[1] == 0) {
    throw ShapeError("[multi_margin_loss] input " + input.str() + " and targets " + target.str() +
                     ", expected [N, C] with at least one class and [N]");
  }
  if (context.inputs.size() < x + 3) return;
  need_same_dtype(context, x, x + 2);
  if (context.shape(x + 2) != Shape{input[1]}) {
    throw ShapeError("[multi_margin_loss] weight has shape " + context.shape(x + 2).str() + ", expected [" +
                     std::to_string(input[1]) + "]");
  }
}

std::vector<OutputMeta> infer(const InferContext& context) {
  check(context, 0);
  return {{context.shape(1), context.dtype(0)}};
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  if (context.inputs.size() == 2) return rule_of({{kRows, kClasses}, {kRows}}, {Letters{kRows}}, kBlocked);
  return rule_of({{kRows, kClasses}, {kRows}, {kClasses}}, {Letters{kRows}}, kBlocked, {{2}});
}

std::vector<OutputMeta> grad_infer(const InferContext& context) {
  check(context, 1);
  return {{context.shape(1), context.dtype(1)}};
}
Rule grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  if (context.inputs.size() == 3) {
    return rule_of({{kRows}, {kRows, kClasses}, {kRows}}, {{kRows, kClasses}}, kBlocked, {{0}});
  }
  return rule_of({{kRows}, {kRows, kClasses}, {kRows}, {kClasses}}, {{kRows, kClasses}}, kBlocked, {{0}, {3}});
}

#if DTORCH_WITH_KERNELS
constexpr int64_t kNoReduction = 0;

struct Operands {
  Operands(const KernelContext& context, size_t x)
      : input_part(input(context, x)), targets(input(context, x + 1).to(at::kLong)) {
    if (context.num_inputs() > x + 2) weight = input(context, x + 2);
  }
  const at::Tensor& input_part;
  at::Tensor targets;
  std::optional<at::Tensor> weight;
};

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MarginAttrs>();
  const Operands operands(context, 0);
  set_output(context, 0,
             operands.targets.numel() == 0 ? at::zeros(output_sizes(context, 0), operands.input_part.options())
                                           : DTORCH_BY_DEVICE(at::native::multi_margin_loss_cpu, at::multi_margin_loss)(
                                                 operands.input_part, operands.targets, attributes.p, attributes.margin,
                                                 operands.weight, kNoReduction));
}
void grad_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MarginAttrs>();
  const Operands operands(context, 1);
  set_output(context, 0,
             operands.targets.numel() == 0
                 ? at::zeros(output_sizes(context, 0), operands.input_part.options())
                 : DTORCH_BY_DEVICE(at::native::multi_margin_loss_cpu_backward, at::multi_margin_loss_backward)(
                       input(context, 0).contiguous(), operands.input_part, operands.targets, attributes.p,
                       attributes.margin, operands.weight, kNoReduction));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  std::vector<Tensor> in = {context.grad_output(0)};
  for (size_t i = 0; i < context.num_inputs(); ++i) in.push_back(context.input(i));
  std::vector<Tensor> gradients(context.num_inputs());
  if (context.needs_grad(0)) {
    gradients[0] = record_list(multi_margin_grad_op, context.attributes<MarginAttrs>(), in, 1, Where::current())[0];
  }
  return gradients;
}

std::vector<Sample> samples() {
  auto call = [](int64_t p, Reduction reduction) {
    return [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{multi_margin_loss(in[0], in[1], p, 0.8, in.size() > 2 ? in[2] : Tensor(), reduction)};
    };
  };
  const SampleInput ids{{5}, kInt64, SampleFill::kIndices, 3, false}, one{{1}, kInt64, SampleFill::kIndices, 4, false};
  return {{.name = "mean, uneven", .inputs = {{{5, 3}}, ids}, .call = call(1, Reduction::kMean)},
          {.name = "rows, weight",
           .inputs = {{{5, 3}, kFloat64}, ids, {{3}, kFloat64, SampleFill::kPositive, 0, false}},
           .call = call(2, Reduction::kNone)},
          {.name = "one row", .inputs = {{{1, 4}, kFloat64}, one}, .call = call(1, Reduction::kSum)}};
}

}  // namespace

constinit OperatorDef multi_margin_loss_op = {
    .name = "multi_margin_loss",
    .signature = "multi_margin_loss(input, target, p, margin, weight, reduction) -> Tensor",
    .attributes = attribute_codec<MarginAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "weight"};
constinit OperatorDef multi_margin_grad_op = {.name = "multi_margin_loss_grad",
                                              .signature = "multi_margin_loss_grad(g, input, target, weight) -> Tensor",
                                              .attributes = attribute_codec<MarginAttrs>(),
                                              .infer = grad_infer,
                                              .rule = grad_rule,
                                              .kernel = DTORCH_KERNEL(grad_kernel),
                                              .linear_in = "g, weight"};

Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p, double margin, const Tensor& weight,
                         Reduction reduction, Where where) {
  if (p != 1 && p != 2) {
    throw at_line(UserError("[multi_margin_loss] p is " + std::to_string(p) + ", allowed are 1 and 2"), where);
  }
  SourceScope scope(where);
  const MarginAttrs attributes{p, margin};
  const Tensor losses = weight.defined() ? record(multi_margin_loss_op, attributes, {&input, &target, &weight}, where)
                                         : record(multi_margin_loss_op, attributes, {&input, &target}, where);
  return reduced_loss(losses, reduction, where);
}

}  // namespace dtorch
