// nll_loss(input [N, C, d...] of log-probabilities, target [N, d...][, weight [C]]): -input[target] weight[target] of
// each row, 0 where the target is ignore_index. Rows may be sharded on any dim. Sharding C: each device picks the
// targets of its own classes, so that the rows are Partial(sum) and then combined. Linear in input and in weight. Sum
// and mean of a whole C: one kernel adds up as LibTorch does; of a sharded C: picked rows and weights are summed where
// they are. Gradient of input alone: -weight[target] times the row's g at the target, 0 elsewhere; linear in g.
#include <algorithm>

#include "ops/loss/operators.h"
#include "ops/math/operators.h"
#include "ops/move/combine.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss2d_forward_native.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/nll_loss_forward_cpu_dispatch.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#include "ops/loss/local_classes.h"
#endif

namespace dtorch {
namespace {

using namespace loss;
using namespace nn_ops;

struct ClassAttrs {
  int64_t class_dim = 1;  // of input
  int64_t ignore_index = -100;
  template <class V>
  void fields(V& v) {
    v("class_dim", class_dim);
    v("ignore_index", ignore_index);
  }
};

Shape without_dim(const Shape& shape, int64_t dim) {
  Shape out;
  for (int64_t d = 0; d < shape.ndim(); ++d) {
    if (d != dim) out.push_back(shape[d]);
  }
  return out;
}

// Of (input, target[, weight]) standing from input number `x` on.
void check(const InferContext& context, size_t x) {
  const std::string op = std::string("[") + context.op + "] ";
  const Shape& shape = context.shape(x);
  const int64_t dim = context.attributes<ClassAttrs>().class_dim;
  need_floating(context, x);
  if (!is_integral(context.dtype(x + 1))) {
    throw DTypeError(op + "targets are " + name_of(context.dtype(x + 1)) + ", allowed are integers");
  }
  if (dim >= shape.ndim() || without_dim(shape, dim) != context.shape(x + 1)) {
    throw ShapeError(op + "input " + shape.str() + " and targets " + context.shape(x + 1).str() +
                     ": targets must have input's shape without dim " + std::to_string(dim));
  }
  if (context.inputs.size() < x + 3) return;
  need_same_dtype(context, x, x + 2);
  if (context.shape(x + 2) != Shape{shape[dim]}) {
    throw ShapeError(op + "weight has shape " + context.shape(x + 2).str() + ", expected one number for each of " +
                     std::to_string(shape[dim]) + " classes");
  }
}

// Letters of input, target and weight.
struct ClassLetters {
  Letters input, rows, weight;
};
ClassLetters class_letters(int64_t ndim, int64_t class_dim) {
  ClassLetters out{letters(ndim), {}, {}};
  for (int64_t d = 0; d < ndim; ++d) (d == class_dim ? out.weight : out.rows).push_back(out.input[d]);
  return out;
}

std::vector<OutputMeta> rows_infer(const InferContext& context) {
  check(context, 0);
  return {{context.shape(1), context.dtype(0)}};
}
Rule rows_rule(const InferContext& context, std::span<const OutputMeta>) {
  const ClassLetters l = class_letters(context.shape(0).ndim(), context.attributes<ClassAttrs>().class_dim);
  if (context.inputs.size() == 2) return rule_of({l.input, l.rows}, {l.rows}, {}, {{0}});
  return rule_of({l.input, l.rows, l.weight}, {l.rows}, {}, {{0}, {2}});
}

// -> (sum of the rows, total weight of the targets)
std::vector<OutputMeta> total_infer(const InferContext& context) {
  check(context, 0);
  return {{Shape{}, context.dtype(0)}, {Shape{}, context.dtype(0)}};
}
Rule total_rule(const InferContext& context, std::span<const OutputMeta>) {
  const ClassLetters l = class_letters(context.shape(0).ndim(), context.attributes<ClassAttrs>().class_dim);
  const int16_t blocked[] = {l.weight[0]};
  if (context.inputs.size() == 2) {
    Rule rule = rule_of({l.input, l.rows}, {Letters{}, Letters{}}, blocked);
    rule.rows.push_back({{Partial(), Replicate()}, {Partial(), Replicate()}});
    return rule;
  }
  Rule rule = rule_of({l.input, l.rows, l.weight}, {Letters{}, Letters{}}, blocked, {{2}});
  rule.rows.push_back({{Partial(), Replicate(), Replicate()}, {Partial(), Replicate()}});
  return rule;
}

// (g [] or as target, input, target[, weight]) -> gradient of input
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  check(context, 1);
  return {{context.shape(1), context.dtype(1)}};
}
Rule grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const ClassLetters l = class_letters(context.shape(1).ndim(), context.attributes<ClassAttrs>().class_dim);
  const Letters g = context.shape(0).ndim() == 0 ? Letters{} : l.rows;
  if (context.inputs.size() == 3) return rule_of({g, l.input, l.rows}, {l.input}, {}, {{0}});
  return rule_of({g, l.input, l.rows, l.weight}, {l.input}, {}, {{0}});
}

// (target, weight) -> total weight of the targets
std::vector<OutputMeta> weight_infer(const InferContext& context) {
  if (!is_integral(context.dtype(0)) || context.shape(1).ndim() != 1) {
    throw ShapeError("[" + std::string(context.op) + "] expected integer targets and a weight [C]");
  }
  return {{Shape{}, context.dtype(1)}};
}
Rule weight_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  return rule_of({letters(ndim), letters(1, static_cast<int16_t>(ndim + 1))}, {Letters{}}, {}, {{1}});
}

#if DTORCH_WITH_KERNELS
LocalClasses local_classes(const KernelContext& context, size_t x) {
  const auto& attributes = context.attributes<ClassAttrs>();
  return {context, x, attributes.class_dim, attributes.ignore_index};
}

// f.operator()<T>() with T the type of a floating, not half, tensor.
template <class F>
void with_type(const at::Tensor& x, F&& f) {
  if (x.scalar_type() == at::kDouble) {
    f.template operator()<double>();
  } else {
    f.template operator()<float>();
  }
}

void rows_kernel(KernelContext& context) {
  const LocalClasses classes = local_classes(context, 0);
  const at::Tensor x = wide(input(context, 0));
  const auto class_dim = context.attributes<ClassAttrs>().class_dim;
  at::Tensor out = at::zeros(output_sizes(context, 0), x.options());
  if (!x.is_cpu() && x.numel() > 0) {
    const auto [local, none] = classes.inside();
    at::Tensor losses = x.gather(class_dim, local.unsqueeze(class_dim)).squeeze(class_dim).neg_();
    if (classes.weight.defined()) losses.mul_(classes.weights_of(local));
    set_output(context, 0, losses.masked_fill_(none, 0).to(input(context, 0).scalar_type()));
    return;
  }
  if (x.is_cpu())
    with_type(x, [&]<class T>() {
      const T* from = x.const_data_ptr<T>();
      const T* weight = classes.weight.defined() ? classes.weight.const_data_ptr<T>() : nullptr;
      T* to = out.mutable_data_ptr<T>();
      classes.for_each([&](int64_t row, int64_t at, int64_t local) {
        to[row] = weight != nullptr ? -from[at] * weight[local] : -from[at];
      });
    });
  set_output(context, 0, out.to(input(context, 0).scalar_type()));
}

void total_kernel(KernelContext& context) {
  const LocalClasses classes = local_classes(context, 0);
  const at::Tensor x = wide(input(context, 0));
  const at::ScalarType type = input(context, 0).scalar_type();
  std::optional<at::Tensor> weight;
  if (classes.weight.defined()) weight = classes.weight;
  at::Tensor total = at::zeros({}, x.options()), total_weight = at::zeros({}, x.options());
  constexpr int64_t kSumReduction = 2;
  if (classes.targets.numel() > 0 && classes.inner * classes.targets.numel() > 0) {
    const int64_t dim = context.attributes<ClassAttrs>().class_dim;
    if (dim == x.dim() - 1) {
      std::tie(total, total_weight) = DTORCH_ATEN(nll_loss_forward)(
          x.view({-1, classes.count}), classes.targets.view({-1}), weight, kSumReduction, classes.ignore_index);
    } else {
      // As LibTorch does for any number of dims after the classes'.
      const int64_t outer = classes.targets.numel() / classes.inner;
      std::tie(total, total_weight) = DTORCH_BY_DEVICE(at::native::nll_loss2d_forward_cpu, at::nll_loss2d_forward)(
          x.view({outer, classes.count, 1, classes.inner}), classes.targets.view({outer, 1, classes.inner}), weight,
          kSumReduction, classes.ignore_index);
    }
  }
  set_output(context, 0, total.to(type));
  set_output(context, 1, total_weight.to(type));
}

void grad_kernel(KernelContext& context) {
  const LocalClasses classes = local_classes(context, 1);
  const at::Tensor g = wide(input(context, 0).expand(classes.targets.sizes()));
  at::Tensor out = at::zeros(output_sizes(context, 0), g.options());
  if (!g.is_cpu() && out.numel() > 0) {
    const auto class_dim = context.attributes<ClassAttrs>().class_dim;
    const auto [local, none] = classes.inside();
    at::Tensor of_rows = g.neg();
    if (classes.weight.defined()) of_rows.mul_(classes.weights_of(local));
    out.scatter_(class_dim, local.unsqueeze(class_dim), of_rows.masked_fill_(none, 0).unsqueeze(class_dim));
  }
  if (g.is_cpu())
    with_type(g, [&]<class T>() {
      const T* from = g.const_data_ptr<T>();
      const T* weight = classes.weight.defined() ? classes.weight.const_data_ptr<T>() : nullptr;
      T* to = out.mutable_data_ptr<T>();
      classes.for_each([&](int64_t row, int64_t at, int64_t local) {
        to[at] = weight != nullptr ? -weight[local] * from[row] : -from[row];
      });
    });
  set_output(context, 0, out.to(scalar_type(context.output_meta(0).dtype)));
}

void weight_kernel(KernelContext& context) {
  const int64_t ignore_index = context.attributes<ClassAttrs>().ignore_index;
  const Box& box = context.input_box(1);
  const at::Tensor weight = wide(input(context, 1));
  const at::Tensor targets = checked_targets(input(context, 0), ignore_index, context.input_meta(1).global_shape[0]);
  at::Tensor out = at::zeros({}, weight.options());
  if (!weight.is_cpu() && weight.numel() > 0 && targets.numel() > 0) {
    const at::Tensor local = targets.sub(box.offset[0]), inside = local.clamp(0, box.size[0] - 1);
    const at::Tensor none = local.ne(inside).logical_or_(targets.eq(ignore_index));
    const at::Tensor weights = weight.index_select(0, inside.view({-1})).to(at::kDouble);
    out = weights.masked_fill_(none.view({-1}), 0).sum().to(weight.scalar_type());
  }
  if (weight.is_cpu())
    with_type(weight, [&]<class T>() {
      double total = 0;
      const int64_t* data = targets.const_data_ptr<int64_t>();
      for (int64_t i = 0; i < targets.numel(); ++i) {
        const int64_t local = data[i] - box.offset[0];
        if (data[i] != ignore_index && local >= 0 && local < box.size[0]) {
          total += static_cast<double>(weight.const_data_ptr<T>()[local]);
        }
      }
      *out.mutable_data_ptr<T>() = static_cast<T>(total);
    });
  set_output(context, 0, out.to(input(context, 1).scalar_type()));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  const Tensor x = context.input(0), target = context.input(1);
  std::vector<Tensor> gradients(context.num_inputs());
  if (!context.needs_grad(0) || !context.grad_output(0).defined()) return gradients;
  const auto& attributes = context.attributes<ClassAttrs>();
  if (context.num_inputs() == 2) {
    gradients[0] = record(nll_grad_op, attributes, {&context.grad_output(0), &x, &target}, Where::current());
  } else {
    const Tensor weight = context.input(2);
    gradients[0] = record(nll_grad_op, attributes, {&context.grad_output(0), &x, &target, &weight}, Where::current());
  }
  return gradients;
}

std::vector<Sample> samples() {
  auto call = [](Reduction reduction, int64_t ignore_index) {
    return [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{nll_loss(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), ignore_index, reduction)};
    };
  };
  const SampleInput ids{{5}, kInt64, SampleFill::kIndices, 3, false};
  const SampleInput grid{{2, 3}, kInt64, SampleFill::kIndices, 4, false};
  const SampleInput weight{{3}, kFloat64, SampleFill::kPositive, 0, false};
  return {{.name = "mean, one class ignored, uneven", .inputs = {{{5, 3}}, ids}, .call = call(Reduction::kMean, 1)},
          {.name = "mean, weight", .inputs = {{{5, 3}, kFloat64}, ids, weight}, .call = call(Reduction::kMean, -100)},
          {.name = "sum, classes in the middle",
           .inputs = {{{2, 4, 3}, kFloat64}, grid},
           .call = call(Reduction::kSum, -100)},
          {.name = "rows, weight", .inputs = {{{5, 3}, kFloat64}, ids, weight}, .call = call(Reduction::kNone, 2)},
          {.name = "one row",
           .inputs = {{{1, 3}}, {{1}, kInt64, SampleFill::kIndices, 3, false}},
           .call = call(Reduction::kMean, -100)}};
}

Tensor record_class(const OperatorDef& op, const ClassAttrs& attributes, const Tensor& x, const Tensor& target,
                    const Tensor& weight, const Where& where) {
  return weight.defined() ? record(op, attributes, {&x, &target, &weight}, where)
                          : record(op, attributes, {&x, &target}, where);
}

bool is_split(const Tensor& x, int64_t dim) { return x.defined() && !x.layout().axes_of_dim(dim).empty(); }

}  // namespace

namespace loss {

Tensor total_target_weight(const NllCall& call, const Tensor& target, const Tensor& weight, DType dtype,
                           const Where& place) {
  NoGrad no_grad;
  Tensor total;
  if (weight.defined()) {
    const Tensor plain = weight.detach();
    total = record(target_weight_op, ClassAttrs{0, call.ignore_index}, {&target, &plain}, place);
    total = to(combined(call.op, {&target, &plain}, total, place), dtype, place);
  } else {
    total = to(count_valid(target, call.ignore_index, place), dtype, place);
  }
  return masked_fill(total, eq(total, 0, place), 1.0, place);
}

Tensor nll(const NllCall& call, const Tensor& x, const Tensor& target, const Tensor& given_weight, const Where& place) {
  SourceScope scope(place);
  // The mean divides by the weights: it isn't linear in them.
  const bool whole = given_weight.defined() && call.reduction == Reduction::kMean;
  const Tensor weight = whole ? reduce_pending(call.op, given_weight, {}, place) : given_weight;
  const ClassAttrs attributes{call.class_dim, call.ignore_index};
  if (call.class_dim < x.ndim()) {
    require_implicit_redistribution(
        call.op, x, call.reduction == Reduction::kNone ? unsharded_layout(x, call.class_dim) : unsharded_layout(x),
        place);
  }
  if (call.reduction == Reduction::kNone) {
    return combined(call.op, {&x, &weight}, record_class(nll_loss_op, attributes, x, target, weight, place), place);
  }
  Tensor total, divisor;
  if (is_split(x, call.class_dim) || is_split(weight, 0)) {
    total = sum_pending(record_class(nll_loss_op, attributes, x, target, weight, place), {}, false, {}, place);
    if (call.reduction == Reduction::kMean) {
      divisor = total_target_weight(call, target, weight, total.dtype(), place);
    }
  } else {
    const std::vector<Tensor> in =
        weight.defined() ? std::vector<Tensor>{x, target, weight} : std::vector<Tensor>{x, target};
    std::vector<Tensor> out = record_list(nll_total_op, attributes, in, 2, place);
    total = out[0];
    if (call.reduction == Reduction::kMean) {
      NoGrad no_grad;
      divisor = combined(call.op, {&weight}, out[1].detach(), place);
      divisor = masked_fill(divisor, eq(divisor, 0, place), 1.0, place);
    }
  }
  total = combined(call.op, {&x, &weight}, total, place);
  return divisor.defined() ? div(total, divisor, place) : total;
}

}  // namespace loss

constinit OperatorDef nll_loss_op = {.name = "nll_loss",
                                     .signature = "nll_loss(input, target, weight, ignore_index, reduction) -> Tensor",
                                     .attributes = attribute_codec<ClassAttrs>(),
                                     .infer = rows_infer,
                                     .rule = rows_rule,
                                     .kernel = DTORCH_KERNEL(rows_kernel),
                                     .gradient = gradient,
                                     .samples = samples,
                                     .placement_class = PlacementClass::kCombines,
                                     .linear_in = "input, weight"};
constinit OperatorDef nll_total_op = {.name = "nll_total",
                                      .signature = "nll_loss(input, target, weight) -> (sum of rows, total weight)",
                                      .attributes = attribute_codec<ClassAttrs>(),
                                      .infer = total_infer,
                                      .rule = total_rule,
                                      .kernel = DTORCH_KERNEL(total_kernel),
                                      .gradient = gradient,
                                      .linear_in = "input, weight"};
constinit OperatorDef nll_grad_op = {.name = "nll_grad",
                                     .signature = "nll_loss_grad(g, input, target, weight) -> Tensor",
                                     .attributes = attribute_codec<ClassAttrs>(),
                                     .infer = grad_infer,
                                     .rule = grad_rule,
                                     .kernel = DTORCH_KERNEL(grad_kernel),
                                     .linear_in = "g"};
constinit OperatorDef target_weight_op = {.name = "target_weight",
                                          .signature = "nll_loss/cross_entropy(target, weight) -> Tensor",
                                          .attributes = attribute_codec<ClassAttrs>(),
                                          .infer = weight_infer,
                                          .rule = weight_rule,
                                          .kernel = DTORCH_KERNEL(weight_kernel),
                                          .linear_in = "weight"};

Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                Reduction reduction, Where where) {
  if (input.ndim() == 0) {
    throw at_line(ShapeError("[nll_loss] input is a scalar, expected [C], [N, C] or [N, C, d...]"), where);
  }
  return nll({"nll_loss", input.ndim() == 1 ? 0 : 1, ignore_index, reduction}, input, target, weight, where);
}

}  // namespace dtorch
