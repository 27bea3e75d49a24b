// normal, uniform, exponential, gumbel and bernoulli of numbers, and randperm: values by philox.h, of (seed, call,
// global element number), so the same on any layout. Every device makes the stretches of its own part; of a permutation
// each makes the whole and takes its part. scalars: [seed, call, first number, second number].
#include "ops/create/distributions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/create/random_fill.h"
#include "runtime/client/call_error.h"

namespace dtorch {
namespace {

using namespace create;

double number(const KernelContext& context, size_t i) { return context.scalar(2 + i).as_double(); }

void normal_kernel(KernelContext& context) {
  const double mean = number(context, 0), std = number(context, 1);
  random_kernel(context, [&]<class T>(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
    std::vector<double> normals(static_cast<size_t>(count));
    fill_normal(call, first, normals.data(), count);
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(mean + std * normals[static_cast<size_t>(i)]);
  });
}
void uniform_kernel(KernelContext& context) {
  const double low = number(context, 0), high = number(context, 1);
  random_kernel(context, [&]<class T>(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
    fill_uniform(call, first, values, count);
    for (int64_t i = 0; i < count; ++i) {
      const T value = static_cast<T>(low + (high - low) * static_cast<double>(values[i]));
      // Rounding may reach the end that doesn't belong to the interval.
      values[i] = static_cast<double>(value) < high || low == high ? value : static_cast<T>(low);
    }
  });
}
void exponential_kernel(KernelContext& context) {
  const double rate = number(context, 0);
  random_kernel(context, [&]<class T>(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
    for_each_open_uniform(call, first, count,
                          [&](int64_t e, double u) { values[e - first] = static_cast<T>(-std::log(u) / rate); });
  });
}
void gumbel_kernel(KernelContext& context) {
  random_kernel(context, []<class T>(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
    for_each_open_uniform(call, first, count,
                          [&](int64_t e, double u) { values[e - first] = static_cast<T>(-std::log(-std::log(u))); });
  });
}
void bernoulli_kernel(KernelContext& context) {
  const double p = number(context, 0);
  random_kernel(context, [&]<class T>(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
    for_each_open_uniform(call, first, count,
                          [&](int64_t e, double u) { values[e - first] = static_cast<T>(u < p ? 1 : 0); });
  });
}

// The order of 64-bit random words, one an element.
void randperm_kernel(KernelContext& context) {
  bool done = false;
  NativeTensor part = make_part(context, &done);
  if (!done && part.num_elements() > 0) {
    const PhiloxCall call = call_of(context);
    std::vector<std::pair<uint64_t, int64_t>> keys;
    const int64_t n = context.output_meta(0).global_shape[0];
    for (int64_t e = 0; e < n;) {
      const PhiloxBlock high = call.block(static_cast<uint64_t>(e) / 4, 0);
      const PhiloxBlock low = call.block(static_cast<uint64_t>(e) / 4, 1);
      for (size_t lane = 0; lane < 4 && e < n; ++lane, ++e)
        keys.emplace_back(uint64_t{high[lane]} << 32 | low[lane], e);
    }
    std::ranges::sort(keys);
    const int64_t first = context.output_box(0).offset[0];
    visit_dtype(part.dtype(), [&]<class T>() {
      T* values = reinterpret_cast<T*>(part.data());
      for (int64_t i = 0; i < part.num_elements(); ++i) {
        values[i] = static_cast<T>(keys[static_cast<size_t>(first + i)].second);
      }
    });
  }
  context.output(0) = std::move(part);
}

std::vector<Sample> samples_of(Tensor (*call)(const Shape&, DType), DType second) {
  return {{.name = "uneven",
           .inputs = {},
           .call =
               [call](const std::vector<Tensor>&) {
                 return std::vector<Tensor>{call({5, 3}, kFloat32)};
               }},
          {.name = "size 1, another dtype", .inputs = {}, .call = [call, second](const std::vector<Tensor>&) {
             return std::vector<Tensor>{call({7, 1}, second)};
           }}};
}
std::vector<Sample> normal_samples() {
  return samples_of([](const Shape& shape, DType dtype) { return normal(3.0, 0.5, shape, {.dtype = dtype}); },
                    kFloat64);
}
std::vector<Sample> uniform_samples() {
  return samples_of([](const Shape& shape, DType dtype) { return uniform(-1.0, 2.5, shape, {.dtype = dtype}); },
                    kFloat64);
}
std::vector<Sample> exponential_samples() {
  return samples_of([](const Shape& shape, DType dtype) { return exponential(2.0, shape, {.dtype = dtype}); },
                    kFloat64);
}
std::vector<Sample> gumbel_samples() {
  return samples_of([](const Shape& shape, DType dtype) { return gumbel(shape, {.dtype = dtype}); }, kFloat64);
}
std::vector<Sample> bernoulli_samples() {
  return samples_of([](const Shape& shape, DType dtype) { return bernoulli(0.3, shape, {.dtype = dtype}); }, kInt64);
}
std::vector<Sample> randperm_samples() {
  auto call = [](int64_t n, TensorOptions options) {
    return [=](const std::vector<Tensor>&) { return std::vector<Tensor>{randperm(n, options)}; };
  };
  return {{.name = "uneven", .inputs = {}, .call = call(7, {})},
          {.name = "empty, int32", .inputs = {}, .call = call(0, {.dtype = kInt32})}};
}

Tensor record_numbers(const OperatorDef& op, const Shape& shape, DType dtype, const TensorOptions& options, double a,
                      double b, const Where& where) {
  return record_random(op, shape, dtype, options.layout(shape.ndim(), where), options.requires_grad,
                       {Scalar::of(a), Scalar::of(b)}, where);
}

}  // namespace

constinit OperatorDef normal_op = {.name = "normal",
                                   .signature = "normal(mean, std, shape, options) -> Tensor",
                                   .attributes = attribute_codec<CreateAttrs>(),
                                   .infer = infer_floating_created,
                                   .kernel = normal_kernel,
                                   .samples = normal_samples,
                                   .placement_class = PlacementClass::kAnyLayout,
                                   .saved_inputs = 0};
constinit OperatorDef uniform_op = {.name = "uniform",
                                    .signature = "uniform(low, high, shape, options) -> Tensor",
                                    .attributes = attribute_codec<CreateAttrs>(),
                                    .infer = infer_floating_created,
                                    .kernel = uniform_kernel,
                                    .samples = uniform_samples,
                                    .placement_class = PlacementClass::kAnyLayout,
                                    .saved_inputs = 0};
constinit OperatorDef exponential_op = {.name = "exponential",
                                        .signature = "exponential(rate, shape, options) -> Tensor",
                                        .attributes = attribute_codec<CreateAttrs>(),
                                        .infer = infer_floating_created,
                                        .kernel = exponential_kernel,
                                        .samples = exponential_samples,
                                        .placement_class = PlacementClass::kAnyLayout,
                                        .saved_inputs = 0};
constinit OperatorDef gumbel_op = {.name = "gumbel",
                                   .signature = "gumbel(shape, options) -> Tensor",
                                   .attributes = attribute_codec<CreateAttrs>(),
                                   .infer = infer_floating_created,
                                   .kernel = gumbel_kernel,
                                   .samples = gumbel_samples,
                                   .placement_class = PlacementClass::kAnyLayout,
                                   .saved_inputs = 0};
constinit OperatorDef bernoulli_p_op = {.name = "bernoulli_p",
                                        .signature = "bernoulli(p, shape, options) -> Tensor",
                                        .attributes = attribute_codec<CreateAttrs>(),
                                        .infer = infer_created,
                                        .kernel = bernoulli_kernel,
                                        .samples = bernoulli_samples,
                                        .placement_class = PlacementClass::kAnyLayout,
                                        .saved_inputs = 0};
constinit OperatorDef randperm_op = {.name = "randperm",
                                     .signature = "randperm(n, options) -> Tensor",
                                     .attributes = attribute_codec<CreateAttrs>(),
                                     .infer = infer_created,
                                     .kernel = randperm_kernel,
                                     .samples = randperm_samples,
                                     .placement_class = PlacementClass::kAnyLayout,
                                     .saved_inputs = 0};

Tensor normal(double mean, double std, const Shape& shape, const TensorOptions& options, Where where) {
  if (!(std >= 0)) {
    throw at_line(UserError("[normal] std is " + std::to_string(std) + ", allowed are 0 and more"), where);
  }
  return record_numbers(normal_op, shape, options.dtype, options, mean, std, where);
}
Tensor uniform(double low, double high, const Shape& shape, const TensorOptions& options, Where where) {
  if (!(low <= high)) {
    throw at_line(UserError("[uniform] low is " + std::to_string(low) + ", high is " + std::to_string(high) +
                            "; high must not be less"),
                  where);
  }
  return record_numbers(uniform_op, shape, options.dtype, options, low, high, where);
}
Tensor exponential(double rate, const Shape& shape, const TensorOptions& options, Where where) {
  if (!(rate > 0)) {
    throw at_line(UserError("[exponential] rate is " + std::to_string(rate) + ", it must be positive"), where);
  }
  return record_numbers(exponential_op, shape, options.dtype, options, rate, 0, where);
}
Tensor gumbel(const Shape& shape, const TensorOptions& options, Where where) {
  return record_numbers(gumbel_op, shape, options.dtype, options, 0, 0, where);
}
Tensor bernoulli(double p, const Shape& shape, const TensorOptions& options, Where where) {
  if (!(p >= 0 && p <= 1)) {
    throw at_line(UserError("[bernoulli] p is " + std::to_string(p) + ", allowed 0 to 1"), where);
  }
  return record_numbers(bernoulli_p_op, shape, options.dtype, options, p, 0, where);
}
Tensor randperm(int64_t n, const TensorOptions& options, Where where) {
  if (n < 0) throw at_line(UserError("[randperm] n is " + std::to_string(n) + ", allowed are 0 and more"), where);
  return record_numbers(randperm_op, {n}, options.dtype.given ? options.dtype.value : kInt64, options, 0, 0, where);
}

}  // namespace dtorch
