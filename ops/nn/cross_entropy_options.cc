// cross_entropy(logits [..., V], targets) with class weights [V], label smoothing or probabilities as targets, as
// PyTorch defines them: a composition of log-probabilities, nll_loss and sums. Where V is sharded the log-probabilities
// stay sharded: only the row maxima and sums of exponentials are combined, and of the losses a number a row (sum and
// mean: one number). Gradient of the log-probabilities there: g - exp(log-probability) sum(g), in logits' layout.
#include "ops/loss/operators.h"
#include "ops/math/functions.h"
#include "ops/move/combine.h"
#include "ops/nn/operators.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"

namespace dtorch::nn_ops {
namespace {

bool is_split(const Tensor& x, int64_t dim) { return !x.layout().axes_of_dim(dim).empty(); }

Tensor log_probabilities(const Tensor& logits, const Where& where) {
  const int64_t last = logits.ndim() - 1;
  if (!is_split(logits, last)) return log_softmax(logits, last, where);
  Tensor out[1];
  {
    NoGrad no_grad;
    const Tensor x = logits.detach();
    const Tensor largest = record(row_max_op, NoAttrs{}, {&x}, where).reduced(where);
    const Tensor total = record(row_sumexp_op, NoAttrs{}, {&x, &largest}, where).reduced(where);
    const Tensor lse = add(largest, log(total, where), where);
    out[0] = to(sub(x, unsqueeze(lse, -1, where), where), logits.dtype(), where);
  }
  const Tensor saved = out[0];
  set_custom_gradient(
      "cross_entropy", {&logits, 1}, out,
      [saved, last](const GradientContext& context) {
        const Tensor& g = context.grad_output(0);
        return std::vector<Tensor>{sub(g, mul(exp(saved), sum(g, {last}, /*keepdim=*/true)))};
      },
      where);
  return out[0];
}

// Losses of the rows, summed or averaged over `count` rows (a number or a scalar tensor).
Tensor of_probabilities(const Tensor& log_probs, const Tensor& targets, const CrossEntropyOptions& options,
                        const Where& where) {
  const int64_t last = log_probs.ndim() - 1, classes = log_probs.shape().back();
  if (targets.shape() != log_probs.shape()) {
    throw at_line(ShapeError("[cross_entropy] logits " + log_probs.shape().str() + " and probabilities " +
                             targets.shape().str() + " as targets must have one shape"),
                  where);
  }
  Tensor wanted = targets;
  if (options.label_smoothing > 0) {
    wanted = add(mul(targets, 1 - options.label_smoothing, where),
                 options.label_smoothing / static_cast<double>(classes), where);
  }
  Tensor products = mul(log_probs, wanted, where);
  if (options.weight.defined()) products = mul(products, options.weight, where);
  if (options.reduction == Reduction::kNone) return neg(sum(products, {last}, false, {}, where), where);
  const Tensor total = neg(sum(products, where), where);
  if (options.reduction == Reduction::kSum) return total;
  return div(total, classes == 0 ? 0 : log_probs.numel() / classes, where);
}

// -sum over classes of log-probability weight, 0 where the target is ignored: what label smoothing adds.
Tensor smooth_loss(const Tensor& log_probs, const Tensor& targets, const CrossEntropyOptions& options,
                   const loss::NllCall& call, const Where& where) {
  const Tensor products = options.weight.defined() ? mul(log_probs, options.weight, where) : log_probs;
  Tensor rows = neg(sum(products, {call.class_dim}, false, {}, where), where);
  rows = masked_fill(rows, eq(targets, options.ignore_index, where), 0.0, where);
  if (options.reduction == Reduction::kNone) return rows;
  const Tensor total = sum(rows, where);
  if (options.reduction == Reduction::kSum) return total;
  return div(total, loss::total_target_weight(call, targets, options.weight, total.dtype(), where), where);
}

}  // namespace

Tensor cross_entropy_with_options(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options,
                                  const Where& where) {
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1)) {
    throw at_line(UserError("[cross_entropy] label_smoothing is " + std::to_string(smoothing) + ", allowed 0 to 1"),
                  where);
  }
  if (logits.ndim() == 0) throw at_line(ShapeError("[cross_entropy] logits are a scalar, expected [..., V]"), where);
  const int64_t last = logits.ndim() - 1, classes = logits.shape().back();
  if (options.weight.defined() && options.weight.shape() != Shape{classes}) {
    throw at_line(ShapeError("[cross_entropy] weight has shape " + options.weight.shape().str() +
                             ", expected one number for each of " + std::to_string(classes) + " classes"),
                  where);
  }
  CrossEntropyOptions own = options;
  if (own.weight.defined()) own.weight = reduce_pending("cross_entropy", own.weight.detach(), {}, where);
  require_implicit_redistribution(
      "cross_entropy", logits,
      options.reduction == Reduction::kNone ? unsharded_layout(logits, last) : unsharded_layout(logits), where);
  const Tensor log_probs = log_probabilities(logits, where);
  if (is_floating(targets.dtype())) return of_probabilities(log_probs, targets, own, where);
  const loss::NllCall call{"cross_entropy", last, options.ignore_index, options.reduction};
  const Tensor of_targets = loss::nll(call, log_probs, targets, own.weight, where);
  if (smoothing == 0) return of_targets;
  const Tensor smooth = smooth_loss(log_probs, targets, own, call, where);
  return add(mul(of_targets, 1 - smoothing, where), mul(smooth, smoothing / static_cast<double>(classes), where),
             where);
}

std::vector<Sample> cross_entropy_option_samples() {
  auto call = [](CrossEntropyOptions options) {
    return [options](const std::vector<Tensor>& in) {
      CrossEntropyOptions own = options;
      if (in.size() > 2) own.weight = in[2];
      return std::vector<Tensor>{cross_entropy(in[0], in[1], own)};
    };
  };
  const SampleInput targets{{5}, kInt64, SampleFill::kIndices, 3, false};
  const SampleInput weight{{3}, kFloat64, SampleFill::kPositive, 0, false};
  return {{.name = "mean, class weights, smoothing",
           .inputs = {{{5, 3}, kFloat64}, targets, weight},
           .call = call({.ignore_index = 1, .label_smoothing = 0.2}),
           .tolerance = 1e-11},
          {.name = "rows, smoothing",
           .inputs = {{{5, 3}, kFloat64}, targets},
           .call = call({.reduction = Reduction::kNone, .label_smoothing = 0.3}),
           .tolerance = 1e-11},
          {.name = "mean of probabilities, smoothing",
           .inputs = {{{5, 3}, kFloat64}, {{5, 3}, kFloat64, SampleFill::kUnit}},
           .call = call({.label_smoothing = 0.1}),
           .tolerance = 1e-11},
          {.name = "rows of probabilities, a dim of size 1",
           .inputs = {{{2, 1, 4}, kFloat64}, {{2, 1, 4}, kFloat64, SampleFill::kUnit}},
           .call = call({.reduction = Reduction::kNone}),
           .tolerance = 1e-11}};
}

}  // namespace dtorch::nn_ops
