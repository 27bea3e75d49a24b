// cross_entropy(logits [..., V], targets [...]): -log softmax(logits)[target], averaged over the targets that aren't
// ignore_index, of the whole global batch. A composition with a gradient of its own: where V isn't sharded, one local
// kernel gives the sum and each row's log-sum-exp; where it is, the row maximum, the sum of exponentials and the
// target's logit are combined over the axis, [...] each. Gradient: (exp(logits - lse) - [target]) times the row's
// weight, in logits' layout. Class weights, label smoothing and probabilities as targets: cross_entropy_options.cc.
#include <algorithm>

#include "ops/math/functions.h"
#include "ops/move/combine.h"
#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "dtorch/kernel.h"
#include "ops/create/checked_index.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

struct TargetAttrs {
  int64_t ignore_index = -100;
  template <class V>
  void fields(V& v) {
    v("ignore_index", ignore_index);
  }
};

// Row values are computed in float32 at least.
DType row_dtype(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

void check(const InferContext& context) {
  const Shape &logits = context.shape(0), &targets = context.shape(1);
  need_floating(context, 0);
  if (!is_integral(context.dtype(1))) {
    throw DTypeError(std::string("[cross_entropy] targets are ") + name_of(context.dtype(1)) +
                     ", allowed are integers");
  }
  if (logits.ndim() != targets.ndim() + 1 || !std::equal(targets.begin(), targets.end(), logits.begin())) {
    throw ShapeError("[cross_entropy] logits " + logits.str() + " and targets " + targets.str() +
                     ", expected [..., V] and [...]");
  }
}

Shape rows_of(const InferContext& context) { return Shape(context.shape(0).begin(), context.shape(0).end() - 1); }

// Of a whole V: (the sum or each row's loss, each row's log-sum-exp).
struct LossAttrs : TargetAttrs {
  bool rows = false;
  template <class V>
  void fields(V& v) {
    TargetAttrs::fields(v);
    v("rows", rows);
  }
};
std::vector<OutputMeta> sum_infer(const InferContext& context) {
  check(context);
  const DType dtype = row_dtype(context.dtype(0));
  return {{context.attributes<LossAttrs>().rows ? rows_of(context) : Shape{}, dtype}, {rows_of(context), dtype}};
}
Rule sum_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int16_t blocked[] = {static_cast<int16_t>(ndim)};
  const Letters loss = context.attributes<LossAttrs>().rows ? letters(ndim - 1) : Letters{};
  return rule_of({letters(ndim), letters(ndim - 1)}, {loss, letters(ndim - 1)}, blocked);
}

std::vector<OutputMeta> row_infer(const InferContext& context) {
  return {{rows_of(context), row_dtype(context.dtype(0))}};
}
Rule max_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  Rule rule = rule_of({letters(ndim)}, {letters(ndim - 1)}, {});
  for (Row& row : rule.rows) {
    if (row.outputs[0].is_partial()) row.outputs[0] = Partial(kMax);
  }
  return rule;
}
// Of (logits, something a row): sharding V gives Partial(sum).
Rule row_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  return rule_of({letters(ndim), letters(ndim - 1)}, {letters(ndim - 1)}, {});
}

// (lse, picked, targets) -> row losses, 0 where ignored.
std::vector<OutputMeta> loss_infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }
Rule loss_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Letters rows = letters(context.shape(0).ndim());
  return rule_of({rows, rows, rows}, {rows}, {});
}

// (logits, targets, lse, row weights [...] or a scalar) -> gradient of logits
std::vector<OutputMeta> grad_infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }
Rule grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const Letters rows = letters(ndim - 1);
  return rule_of({letters(ndim), rows, rows, context.shape(3).ndim() == 0 ? Letters{} : rows}, {letters(ndim)}, {},
                 {{3}});
}

std::vector<OutputMeta> count_infer(const InferContext&) { return {{Shape{}, kInt64}}; }
Rule count_rule(const InferContext& context, std::span<const OutputMeta>) {
  return rule_of({letters(context.shape(0).ndim())}, {Letters{}}, {});
}

#if DTORCH_WITH_KERNELS
at::Tensor wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble || x.scalar_type() == at::kFloat ? x : x.to(at::kFloat);
}

void sum_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<LossAttrs>();
  const int64_t ignore_index = attributes.ignore_index;
  at::Tensor logits = wide(input(context, 0));
  const int64_t vocab = logits.size(-1);
  at::Tensor targets = checked_targets(input(context, 1), ignore_index, vocab).view({-1});
  at::Tensor flat = logits.reshape({targets.numel(), vocab});
  if (flat.numel() == 0) {
    set_output(context, 0, at::zeros(output_sizes(context, 0), logits.options()));
    set_output(context, 1, at::zeros(output_sizes(context, 1), logits.options()));
    return;
  }
  // nll of log_softmax, as PyTorch computes it.
  at::Tensor log_probs = at::log_softmax(flat, 1);
  const int64_t reduction = attributes.rows ? 0 : 2;  // none or sum
  set_output(context, 0,
             std::get<0>(at::nll_loss_forward(log_probs, targets, std::nullopt, reduction, ignore_index))
                 .view(output_sizes(context, 0)));
  // lse = logits - log_probs in any column.
  set_output(context, 1, flat.select(1, 0).sub(log_probs.select(1, 0)).view(output_sizes(context, 1)));
}

void max_kernel(KernelContext& context) {
  at::Tensor logits = wide(input(context, 0));
  set_output(context, 0,
             logits.size(-1) == 0
                 ? at::full(output_sizes(context, 0), -std::numeric_limits<double>::infinity(), logits.options())
                 : at::amax(logits, -1));
}

void sumexp_kernel(KernelContext& context) {
  at::Tensor shifted = wide(input(context, 0)).sub(input(context, 1).unsqueeze(-1));
  set_output(context, 0, shifted.exp_().sum(-1));
}

// For each row with a target in this device's columns: f(row, column of this device).
template <class F>
void for_each_target(const at::Tensor& targets, const Box& logits_box, int64_t ignore_index, F&& f) {
  const int64_t* data = targets.const_data_ptr<int64_t>();
  const int64_t first = logits_box.offset[logits_box.ndim() - 1], count = logits_box.size[logits_box.ndim() - 1];
  for (int64_t i = 0; i < targets.numel(); ++i) {
    if (data[i] != ignore_index && data[i] >= first && data[i] < first + count) f(i, data[i] - first);
  }
}

// The same as tensors, for other devices than the CPU: columns inside, and where there is none.
struct TargetColumns {
  TargetColumns(const at::Tensor& targets, const Box& logits_box, int64_t ignore_index) {
    const int64_t first = logits_box.offset[logits_box.ndim() - 1], count = logits_box.size[logits_box.ndim() - 1];
    const at::Tensor local = targets.sub(first);
    columns = local.clamp(0, count - 1);
    none = local.ne(columns).logical_or_(targets.eq(ignore_index)).unsqueeze_(-1);
    columns.unsqueeze_(-1);
  }
  at::Tensor columns, none;  // [..., 1]
};

template <class T>
void pick(const at::Tensor& logits, const at::Tensor& targets, const Box& box, int64_t ignore_index, at::Tensor& out) {
  const T* from = logits.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  const int64_t width = box.size[box.ndim() - 1];
  for_each_target(targets, box, ignore_index,
                  [&](int64_t row, int64_t column) { to[row] = from[row * width + column]; });
}

void pick_kernel(KernelContext& context) {
  const int64_t ignore_index = context.attributes<TargetAttrs>().ignore_index;
  at::Tensor logits = wide(input(context, 0)).contiguous();
  at::Tensor targets = checked_targets(input(context, 1), ignore_index, context.input_meta(0).global_shape.back());
  at::Tensor out = at::zeros(output_sizes(context, 0), logits.options());
  if (!logits.is_cpu()) {
    if (logits.numel() == 0) return set_output(context, 0, out);
    const TargetColumns own(targets, context.input_box(0), ignore_index);
    return set_output(context, 0, logits.gather(-1, own.columns).masked_fill_(own.none, 0).squeeze(-1));
  }
  if (logits.scalar_type() == at::kDouble) {
    pick<double>(logits, targets, context.input_box(0), ignore_index, out);
  } else {
    pick<float>(logits, targets, context.input_box(0), ignore_index, out);
  }
  set_output(context, 0, std::move(out));
}

void loss_kernel(KernelContext& context) {
  at::Tensor loss = input(context, 0).sub(input(context, 1));
  loss.masked_fill_(input(context, 2).eq(context.attributes<TargetAttrs>().ignore_index), 0);
  set_output(context, 0, std::move(loss));
}

template <class T>
void subtract_targets(const at::Tensor& targets, const at::Tensor& weights, const Box& box, int64_t ignore_index,
                      at::Tensor& grad) {
  T* out = grad.mutable_data_ptr<T>();
  const T* w = weights.const_data_ptr<T>();
  const int64_t width = box.size[box.ndim() - 1];
  for_each_target(targets, box, ignore_index,
                  [&](int64_t row, int64_t column) { out[row * width + column] -= w[row]; });
}

void grad_kernel(KernelContext& context) {
  const int64_t ignore_index = context.attributes<TargetAttrs>().ignore_index;
  at::Tensor logits = wide(input(context, 0));
  at::Tensor targets = input(context, 1).to(at::kLong).contiguous();
  // Weight of each row: the incoming gradient, 0 where the target is ignored.
  at::Tensor weights = input(context, 3).expand(targets.sizes()).to(logits.scalar_type()).contiguous().clone();
  weights.masked_fill_(targets.eq(ignore_index), 0);
  at::Tensor grad = logits.sub(input(context, 2).unsqueeze(-1)).exp_().mul_(weights.unsqueeze(-1)).contiguous();
  if (!grad.is_cpu()) {
    if (grad.numel() > 0) {
      const TargetColumns own(targets, context.input_box(0), ignore_index);
      grad.scatter_add_(-1, own.columns, weights.neg().unsqueeze_(-1).masked_fill_(own.none, 0));
    }
  } else if (grad.scalar_type() == at::kDouble) {
    subtract_targets<double>(targets, weights, context.input_box(0), ignore_index, grad);
  } else {
    subtract_targets<float>(targets, weights, context.input_box(0), ignore_index, grad);
  }
  set_output(context, 0, grad.to(input(context, 0).scalar_type()));
}

void count_kernel(KernelContext& context) {
  set_output(context, 0, input(context, 0).ne(context.attributes<TargetAttrs>().ignore_index).sum());
}
#endif

struct Rows {
  Tensor loss_sum;  // scalar, may be Partial; undefined where row losses were asked
  Tensor losses;    // [...]; undefined unless asked
  Tensor lse;       // [...]
};

Rows forward(const Tensor& logits, const Tensor& targets, const TargetAttrs& attributes, bool want_rows,
             const Where& where) {
  const int64_t last = logits.ndim() - 1;
  bool split = false;
  for (const Placement& p : logits.placements()) split |= p.is_shard(last);
  if (!split) {
    const LossAttrs loss_attributes{attributes, want_rows};
    auto [loss, lse] = record_many<2>(nll_sum_op, loss_attributes, {&logits, &targets}, where);
    return want_rows ? Rows{Tensor(), loss, lse} : Rows{loss, Tensor(), lse};
  }
  Tensor largest = record(row_max_op, NoAttrs{}, {&logits}, where).reduced(where);
  Tensor total = record(row_sumexp_op, NoAttrs{}, {&logits, &largest}, where).reduced(where);
  Tensor lse = add(largest, total.log(where), where);
  Tensor picked = record(row_pick_op, attributes, {&logits, &targets}, where).reduced(where);
  Tensor losses = record(row_loss_op, attributes, {&lse, &picked, &targets}, where);
  return {want_rows ? Tensor() : losses.sum(where), losses, lse};
}

std::vector<Sample> samples() {
  auto call = [](CrossEntropyOptions options) {
    return
        [options](const std::vector<Tensor>& in) { return std::vector<Tensor>{cross_entropy(in[0], in[1], options)}; };
  };
  SampleInput targets{{5}, kInt64, SampleFill::kIndices, 7, false},
      grid{{3, 1}, kInt64, SampleFill::kIndices, 6, false};
  std::vector<Sample> plain = {
      {.name = "mean, one class ignored, uneven",
       .inputs = {{{5, 7}, kFloat64}, targets},
       .call = call({.ignore_index = 3}),
       .tolerance = 1e-11},
      {.name = "sum", .inputs = {{{3, 1, 6}}, grid}, .call = call({.reduction = Reduction::kSum})},
      {.name = "rows",
       .inputs = {{{3, 1, 6}, kFloat64}, grid},
       .call = call({.reduction = Reduction::kNone}),
       .tolerance = 1e-11}};
  for (Sample& sample : cross_entropy_option_samples()) plain.push_back(std::move(sample));
  return plain;
}

}  // namespace

constinit OperatorDef nll_sum_op = {.name = "cross_entropy",
                                    .signature = "cross_entropy(logits, targets, ignore_index, reduction) -> Tensor",
                                    .attributes = attribute_codec<LossAttrs>(),
                                    .infer = sum_infer,
                                    .rule = sum_rule,
                                    .kernel = DTORCH_KERNEL(sum_kernel),
                                    .samples = samples,
                                    .placement_class = PlacementClass::kCombines};
constinit OperatorDef row_max_op = {
    .name = "cross_entropy_max",
    .signature = "cross_entropy(logits) -> maximum of every row",
    .infer = row_infer,
    .rule = max_rule,
    .kernel = DTORCH_KERNEL(max_kernel),
};
constinit OperatorDef row_sumexp_op = {
    .name = "cross_entropy_sumexp",
    .signature = "cross_entropy(logits, maximum) -> row sums of exp(logits - maximum)",
    .infer = row_infer,
    .rule = row_rule,
    .kernel = DTORCH_KERNEL(sumexp_kernel),
};
constinit OperatorDef row_pick_op = {
    .name = "cross_entropy_pick",
    .signature = "cross_entropy(logits, targets) -> the target's logit of every row",
    .attributes = attribute_codec<TargetAttrs>(),
    .infer = row_infer,
    .rule = row_rule,
    .kernel = DTORCH_KERNEL(pick_kernel),
};
constinit OperatorDef row_loss_op = {
    .name = "cross_entropy_rows",
    .signature = "cross_entropy(lse, picked, targets) -> lse - picked, 0 where ignored",
    .attributes = attribute_codec<TargetAttrs>(),
    .infer = loss_infer,
    .rule = loss_rule,
    .kernel = DTORCH_KERNEL(loss_kernel),
};
constinit OperatorDef cross_entropy_grad_op = {
    .name = "cross_entropy_grad",
    .signature = "cross_entropy_grad(logits, targets, lse, weight) -> Tensor",
    .attributes = attribute_codec<TargetAttrs>(),
    .infer = grad_infer,
    .rule = grad_rule,
    .kernel = DTORCH_KERNEL(grad_kernel),
    .linear_in = "weight",
};
constinit OperatorDef count_valid_op = {.name = "count_valid",
                                        .signature = "count_valid(targets, ignore_index) -> Tensor",
                                        .attributes = attribute_codec<TargetAttrs>(),
                                        .infer = count_infer,
                                        .rule = count_rule,
                                        .kernel = DTORCH_KERNEL(count_kernel),
                                        .placement_class = PlacementClass::kCombines};

Tensor count_valid(const Tensor& targets, int64_t ignore_index, Where where) {
  SourceScope scope(where);
  require_implicit_redistribution("count_valid", targets, unsharded_layout(targets), where);
  return record(count_valid_op, TargetAttrs{ignore_index}, {&targets}, where).reduced(where);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options, Where where) {
  SourceScope scope(where);
  if (options.weight.defined() || options.label_smoothing != 0 || is_floating(targets.dtype())) {
    return cross_entropy_with_options(logits, targets, options, where);
  }
  const TargetAttrs attributes{options.ignore_index};
  // A loss a row combines only over a sharded V; the sum and the mean over everything that is sharded.
  const bool rows_only = options.reduction == Reduction::kNone;
  require_implicit_redistribution("cross_entropy", logits,
                                  rows_only ? unsharded_layout(logits, logits.ndim() - 1) : unsharded_layout(logits),
                                  where);
  Tensor loss, lse, divisor;
  {
    NoGrad no_grad;
    Rows rows = forward(logits.detach(), targets, attributes, options.reduction == Reduction::kNone, where);
    lse = rows.lse;
    loss = options.reduction == Reduction::kNone ? rows.losses : rows.loss_sum.reduced(where);
    if (options.reduction == Reduction::kMean) {
      // 0 / 1 when nothing is valid.
      divisor = count_valid(targets, options.ignore_index, where).to(loss.dtype(), where).clamp(1.0, {}, where);
      loss = div(loss, divisor, where);
    }
    // bf16 and f16 logits give a loss in their type, as in PyTorch.
    if (loss.dtype() != logits.dtype()) loss = loss.to(logits.dtype(), where);
  }
  Tensor saved_logits = logits.detach(), saved_targets = targets;
  const Tensor inputs[] = {logits, targets};
  Tensor outputs[] = {loss};
  set_custom_gradient(
      "cross_entropy", inputs, outputs,
      [=](const GradientContext& context) {
        Tensor weight = context.grad_output(0);
        if (weight.dtype() != lse.dtype()) weight = weight.to(lse.dtype());
        if (divisor.defined()) weight = div(weight, divisor);
        return std::vector<Tensor>{
            record(cross_entropy_grad_op, attributes, {&saved_logits, &saved_targets, &lse, &weight}, Where::current()),
            Tensor()};
      },
      where);
  return outputs[0];
}

}  // namespace dtorch
