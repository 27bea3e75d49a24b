// multinomial(probs [C] or [N, C], num_samples, replacement) -> class numbers [num_samples] or [N, num_samples]. With
// replacement: inversion of the cumulative weights, a uniform number for each global element of the result. Without:
// the smallest of exponential(1) / weight, an exponential number for each global element of probs (the race of
// exponentials), in rising order. Rows may be sharded; classes must be whole, the user's function gathers them and
// reduces what is pending. No gradient. scalars: [seed, call].
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/create/distributions.h"
#include "ops/create/random_fill.h"
#include "ops/move/combine.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace create;

struct MultinomialAttrs {
  int64_t num_samples = 1;
  bool replacement = false;
  template <class V>
  void fields(V& v) {
    v("num_samples", num_samples);
    v("replacement", replacement);
  }
};

constexpr int16_t kRows = 1, kClasses = 2;
constexpr int16_t kBlocked[] = {kClasses};

std::vector<OutputMeta> infer(const InferContext& context) {
  nn_ops::need_floating(context, 0);
  Shape shape = context.shape(0);
  shape.back() = context.attributes<MultinomialAttrs>().num_samples;
  return {{shape, kInt64}};
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  if (context.shape(0).ndim() == 1) return nn_ops::rule_of({{kClasses}}, {{kNoLetter}}, kBlocked);
  return nn_ops::rule_of({{kRows, kClasses}}, {{kRows, kNoLetter}}, kBlocked);
}

#if DTORCH_WITH_KERNELS
void check_weights(const double* weights, int64_t count) {
  for (int64_t c = 0; c < count; ++c) {
    if (!(weights[c] >= 0) || std::isinf(weights[c])) {
      throw RuntimeFault("a weight is " + std::to_string(weights[c]) + ", allowed are finite numbers from 0");
    }
  }
}

// first: number of the row's first sample among all.
void draw_with_replacement(const PhiloxCall& call, const std::vector<double>& cumulative, int64_t first,
                           int64_t num_samples, int64_t* out) {
  if (cumulative.empty() || cumulative.back() <= 0) throw RuntimeFault("a row has no class of positive weight");
  for_each_open_uniform(call, first, num_samples, [&](int64_t e, double u) {
    const auto above = std::ranges::upper_bound(cumulative, u * cumulative.back());
    // Rounding may reach the total, which belongs to the last class of positive weight.
    const auto at = above == cumulative.end() ? std::ranges::lower_bound(cumulative, cumulative.back()) : above;
    out[e - first] = at - cumulative.begin();
  });
}

// first: number of the row's first weight among all.
void draw_without_replacement(const PhiloxCall& call, const double* weights, int64_t count, int64_t first,
                              int64_t num_samples, int64_t* out) {
  std::vector<std::pair<double, int64_t>> arrivals;
  for_each_open_uniform(call, first, count, [&](int64_t e, double u) {
    const double weight = weights[e - first];
    if (weight > 0) arrivals.emplace_back(-std::log(u) / weight, e - first);
  });
  if (static_cast<int64_t>(arrivals.size()) < num_samples) {
    throw RuntimeFault("a row has " + std::to_string(arrivals.size()) + " classes of positive weight, " +
                       std::to_string(num_samples) + " samples without replacement were asked");
  }
  std::partial_sort(arrivals.begin(), arrivals.begin() + num_samples, arrivals.end());
  for (int64_t j = 0; j < num_samples; ++j) out[j] = arrivals[static_cast<size_t>(j)].second;
}

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MultinomialAttrs>();
  const PhiloxCall call = call_of(context);
  const Box& box = context.input_box(0);
  const int64_t count = box.size.back(), num_samples = attributes.num_samples;
  const int64_t rows = box.ndim() == 1 ? 1 : box.size[0], first_row = box.ndim() == 1 ? 0 : box.offset[0];
  const at::Tensor probs = input(context, 0).to(at::kDouble).contiguous();
  at::Tensor out = at::empty(output_sizes(context, 0), tensor_options(kInt64));
  for (int64_t row = 0; row < rows && num_samples > 0; ++row) {
    const double* weights = probs.const_data_ptr<double>() + row * count;
    int64_t* to = out.mutable_data_ptr<int64_t>() + row * num_samples;
    check_weights(weights, count);
    if (!attributes.replacement) {
      draw_without_replacement(call, weights, count, (first_row + row) * count, num_samples, to);
      continue;
    }
    std::vector<double> cumulative(static_cast<size_t>(count));
    double total = 0;
    for (int64_t c = 0; c < count; ++c) cumulative[static_cast<size_t>(c)] = total += weights[c];
    draw_with_replacement(call, cumulative, (first_row + row) * num_samples, num_samples, to);
  }
  set_output(context, 0, std::move(out));
}
#endif

std::vector<Sample> samples() {
  auto call = [](int64_t num_samples, bool replacement) {
    return [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{multinomial(in[0], num_samples, replacement)};
    };
  };
  return {{.name = "without replacement, uneven",
           .inputs = {{{5, 4}, kFloat32, SampleFill::kPositive, 0, false}},
           .call = call(3, false)},
          {.name = "with replacement, one row",
           .inputs = {{{1, 3}, kFloat64, SampleFill::kPositive, 0, false}},
           .call = call(7, true)},
          {.name = "of one distribution",
           .inputs = {{{5}, kFloat64, SampleFill::kPositive, 0, false}},
           .call = call(2, true)}};
}

}  // namespace

constinit OperatorDef multinomial_op = {.name = "multinomial",
                                        .signature = "multinomial(probs, num_samples, replacement) -> Tensor",
                                        .attributes = attribute_codec<MultinomialAttrs>(),
                                        .infer = infer,
                                        .rule = rule,
                                        .kernel = DTORCH_KERNEL(kernel),
                                        .samples = samples,
                                        .placement_class = PlacementClass::kCombines,
                                        .saved_inputs = 0};

Tensor multinomial(const Tensor& probs, int64_t num_samples, bool replacement, Where where) {
  SourceScope scope(where);
  if (probs.ndim() != 1 && probs.ndim() != 2) {
    throw at_line(ShapeError("[multinomial] probs have shape " + probs.shape().str() + ", expected [C] or [N, C]"),
                  where);
  }
  if (num_samples < 0 || (!replacement && num_samples > probs.shape().back())) {
    throw at_line(
        ShapeError("[multinomial] " + std::to_string(num_samples) + " samples of " +
                   std::to_string(probs.shape().back()) + " classes" + (replacement ? "" : " without replacement")),
        where);
  }
  NoGrad no_grad;
  const DrawScope draw(probs);
  Tensor x = reduce_pending("multinomial", probs.detach(), {}, where);
  const Layout whole = unsharded_layout(x, x.ndim() - 1);
  require_implicit_redistribution("multinomial", x, whole, where);
  if (whole != x.layout()) x = x.redistribute(whole, where);
  return record(multinomial_op, MultinomialAttrs{num_samples, replacement}, {&x}, where,
                {.scalars = next_random_scalars()});
}

}  // namespace dtorch
