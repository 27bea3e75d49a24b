// Random values whose distribution is given by tensors: normal(mean, std) = mean + std z, bernoulli(p) and
// poisson(rate), element by element with broadcasting. A value is a function of (seed, call, global element number of
// the result) and its own inputs, so the same on any layout. Same on every dim; for given noise normal is linear in
// (mean, std) together, so that both may be Partial(sum). No gradients. scalars: [seed, call].
#include <cmath>

#include "ops/create/distributions.h"
#include "ops/create/random_fill.h"
#include "ops/math/operators.h"
#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace create;

// A mean or standard deviation that is a number: scalar 2.
struct NormalAttrs {
  bool number_mean = false, number_std = false;
  template <class V>
  void fields(V& v) {
    v("number_mean", number_mean);
    v("number_std", number_std);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  for (size_t i = 0; i < context.inputs.size(); ++i) nn_ops::need_floating(context, i);
  return {{math::broadcast_inputs(context), math::result_dtype(context.inputs)}};
}
Rule normal_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  return math::elementwise(context, outputs, context.inputs.size() == 2 ? Linear::kInAll : Linear::kNo);
}

#if DTORCH_WITH_KERNELS
// Input i as float64, broadcast to this device's part of the result.
at::Tensor spread_input(const KernelContext& context, size_t i) {
  return input(context, i).to(at::kDouble).expand(output_sizes(context, 0)).contiguous();
}

// make(first element, count, local offset, out): values of one stretch, as float64.
template <class F>
void fill_part(KernelContext& context, F&& make) {
  at::Tensor out = at::empty(output_sizes(context, 0), tensor_options(kFloat64));
  double* values = out.mutable_data_ptr<double>();
  for_each_contiguous_run(
      context.output_meta(0).global_shape, context.output_box(0),
      [&](int64_t global, int64_t local, int64_t length) { make(global, length, local, values + local); });
  set_output(context, 0, out.to(scalar_type(context.output_meta(0).dtype)));
}

void normal_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<NormalAttrs>();
  const PhiloxCall call = call_of(context);
  at::Tensor mean, std;
  if (!attributes.number_mean) mean = spread_input(context, 0);
  if (!attributes.number_std) std = spread_input(context, attributes.number_mean ? 0 : 1);
  const double number = attributes.number_mean || attributes.number_std ? context.scalar(2).as_double() : 0;
  fill_part(context, [&](int64_t first, int64_t count, int64_t local, double* out) {
    fill_normal(call, first, out, count);
    for (int64_t i = 0; i < count; ++i) {
      const double m = mean.defined() ? mean.const_data_ptr<double>()[local + i] : number;
      const double s = std.defined() ? std.const_data_ptr<double>()[local + i] : number;
      out[i] = m + s * out[i];
    }
  });
}

void bernoulli_kernel(KernelContext& context) {
  const at::Tensor p = spread_input(context, 0);
  const double* probabilities = p.const_data_ptr<double>();
  fill_part(context, [&](int64_t first, int64_t count, int64_t local, double* out) {
    for_each_open_uniform(call_of(context), first, count, [&](int64_t e, double u) {
      const double chance = probabilities[local + (e - first)];
      if (!(chance >= 0 && chance <= 1)) {
        throw RuntimeFault("a probability is " + std::to_string(chance) + ", allowed 0 to 1");
      }
      out[e - first] = u < chance ? 1 : 0;
    });
  });
}

// Uniform numbers in (0, 1) of one element's own.
class OwnUniforms {
 public:
  explicit OwnUniforms(uint64_t seed) : call_{seed, 0} {}
  double next() {
    double value = 0;
    for_each_open_uniform(call_, count_, 1, [&](int64_t, double u) { value = u; });
    ++count_;
    return value;
  }

 private:
  PhiloxCall call_;
  int64_t count_ = 0;
};

// Small rates: products of uniform numbers. Others: the transformed rejection of W. Hormann, "The transformed rejection
// method for generating Poisson random variables" (1993), algorithm PTRS.
double poisson_value(double rate, OwnUniforms& uniforms) {
  if (rate < 10) {
    double count = 0;
    for (double product = uniforms.next(); product > std::exp(-rate); product *= uniforms.next()) ++count;
    return count;
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = uniforms.next() - 0.5, v = uniforms.next();
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    const double accepted = -rate + k * std::log(rate) - std::lgamma(k + 1);
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <= accepted) return k;
  }
}

void poisson_kernel(KernelContext& context) {
  const PhiloxCall call = call_of(context);
  const at::Tensor rates = spread_input(context, 0);
  fill_part(context, [&](int64_t first, int64_t count, int64_t local, double* out) {
    for (int64_t i = 0; i < count; ++i) {
      const double rate = rates.const_data_ptr<double>()[local + i];
      if (!(rate >= 0) || std::isinf(rate)) {
        throw RuntimeFault("a rate is " + std::to_string(rate) + ", allowed are finite numbers from 0");
      }
      const uint64_t e = static_cast<uint64_t>(first + i);
      OwnUniforms uniforms(uint64_t{call.block(e / 4, 0)[e % 4]} << 32 | call.block(e / 4, 1)[e % 4]);
      out[i] = rate == 0 ? 0 : poisson_value(rate, uniforms);
    }
  });
}
#endif

std::vector<Sample> normal_samples() {
  return {
      {.name = "uneven, broadcast",
       .inputs = {{{5, 3}, kFloat64, SampleFill::kNormal, 0, false}, {{3}, kFloat64, SampleFill::kPositive, 0, false}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{normal(in[0], in[1])}; }},
      {.name = "numbers, a dim of size 1",
       .inputs = {{{4, 1}, kFloat32, SampleFill::kPositive, 0, false}},
       .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{normal(in[0], 0.5), normal(2.0, in[0])};
       }}};
}
template <Tensor (*kFunction)(const Tensor&, Where)>
std::vector<Sample> samples_of(SampleFill fill) {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{kFunction(in[0], Where::current())}; };
  return {{.name = "uneven", .inputs = {{{5, 3}, kFloat32, fill, 0, false}}, .call = call},
          {.name = "a dim of size 1", .inputs = {{{4, 1, 2}, kFloat64, fill, 0, false}}, .call = call}};
}
std::vector<Sample> bernoulli_samples() { return samples_of<bernoulli>(SampleFill::kUnit); }
std::vector<Sample> poisson_samples() {
  std::vector<Sample> samples = samples_of<poisson>(SampleFill::kPositive);
  samples.push_back({.name = "large rates",
                     .inputs = {{{5, 2}, kFloat64, SampleFill::kPositive, 0, false}},
                     .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{poisson(in[0] * 40.0)}; }});
  return samples;
}

}  // namespace

constinit OperatorDef normal_of_op = {.name = "normal_of",
                                      .signature = "normal(mean, std) -> Tensor",
                                      .attributes = attribute_codec<NormalAttrs>(),
                                      .infer = infer,
                                      .rule = normal_rule,
                                      .kernel = DTORCH_KERNEL(normal_kernel),
                                      .samples = normal_samples,
                                      .linear_in = "(mean, std)",
                                      .saved_inputs = 0};
constinit OperatorDef bernoulli_op = {.name = "bernoulli",
                                      .signature = "bernoulli(p) -> Tensor",
                                      .infer = infer,
                                      .rule = math::elementwise_rule_of<Linear::kNo>,
                                      .kernel = DTORCH_KERNEL(bernoulli_kernel),
                                      .samples = bernoulli_samples,
                                      .saved_inputs = 0};
constinit OperatorDef poisson_op = {.name = "poisson",
                                    .signature = "poisson(rate) -> Tensor",
                                    .infer = infer,
                                    .rule = math::elementwise_rule_of<Linear::kNo>,
                                    .kernel = DTORCH_KERNEL(poisson_kernel),
                                    .samples = poisson_samples,
                                    .saved_inputs = 0};

Tensor normal(const Tensor& mean, const Tensor& std, Where where) {
  const DrawScope draw(mean);
  return record(normal_of_op, NormalAttrs{}, {&mean, &std}, where, {.scalars = next_random_scalars()});
}
Tensor normal(const Tensor& mean, double std, Where where) {
  const DrawScope draw(mean);
  return record(normal_of_op, NormalAttrs{.number_std = true}, {&mean}, where,
                {.scalars = next_random_scalars({Scalar::of(std)})});
}
Tensor normal(double mean, const Tensor& std, Where where) {
  const DrawScope draw(std);
  return record(normal_of_op, NormalAttrs{.number_mean = true}, {&std}, where,
                {.scalars = next_random_scalars({Scalar::of(mean)})});
}
Tensor bernoulli(const Tensor& p, Where where) {
  const DrawScope draw(p);
  return record(bernoulli_op, NoAttrs{}, {&p}, where, {.scalars = next_random_scalars()});
}
Tensor poisson(const Tensor& rate, Where where) {
  const DrawScope draw(rate);
  return record(poisson_op, NoAttrs{}, {&rate}, where, {.scalars = next_random_scalars()});
}

}  // namespace dtorch
