#include "ops/image/norm_kernels.h"

#include <algorithm>
#include <cmath>

#include "ops/image/norm_device.h"

namespace dtorch::image {
namespace {

template <class T>
double wide(T value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}
template <class T>
T narrow(double value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

// The elements of one channel of one batch element lie side by side.
struct Channel {
  int64_t first;       // local number of the first
  int64_t count;       // of elements
  int64_t channel;     // local
  int64_t statistics;  // local number of the group's
};

// Calls f(Channel) for all channels of the part x_box of x; statistics_box: the part of the statistics.
template <class F>
void for_each_channel(const NormAttrs& a, const Shape& x_shape, const Box& x_box, const Box& statistics_box,
                      const F& f) {
  if (x_box.empty()) return;
  const int64_t channels = x_box.size[1], count = x_box.num_elements() / (x_box.size[0] * channels);
  const int64_t group_channels = x_shape[1] / a.groups, last = statistics_box.ndim() - 1;
  for (int64_t n = 0; n < x_box.size[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t group = (x_box.offset[1] + c) / group_channels - statistics_box.offset[last];
      const int64_t row = a.over_batch ? 0 : n * statistics_box.size[last];
      f(Channel{(n * channels + c) * count, count, c, row + group});
    }
  }
}

// An input or output as packed memory.
template <class T>
const T* packed(const NativeTensor& tensor) {
  return reinterpret_cast<const T*>(tensor.data());
}
const double* statistics_of(const NativeTensor& tensor) { return packed<double>(tensor); }
double* new_statistics(KernelContext& context, size_t i) {
  context.output(i) = NativeTensor::empty(context.output_box(i).size, kFloat64);
  auto* data = reinterpret_cast<double*>(context.output(i).data());
  std::fill_n(data, context.output_box(i).num_elements(), 0.0);
  return data;
}

std::vector<NativeTensor> packed_inputs(const KernelContext& context) {
  std::vector<NativeTensor> inputs;
  for (size_t i = 0; i < context.num_inputs(); ++i) inputs.push_back(context.input(i).contiguous());
  return inputs;
}

}  // namespace

void norm_sums_kernel(KernelContext& context) {
  if (is_on_device(context)) return norm_sums_on_device(context);
  const std::vector<NativeTensor> in = packed_inputs(context);
  double* sums = new_statistics(context, 0);
  visit_dtype(in[0].dtype(), [&]<class T>() {
    const T* x = packed<T>(in[0]);
    for_each_channel(context.attributes<NormAttrs>(), context.input_meta(0).global_shape, context.input_box(0),
                     context.output_box(0), [&](const Channel& at) {
                       double sum = 0;
                       for (int64_t e = at.first; e < at.first + at.count; ++e) sum += wide(x[e]);
                       sums[at.statistics] += sum;
                     });
  });
}

void norm_squares_kernel(KernelContext& context) {
  if (is_on_device(context)) return norm_squares_on_device(context);
  const std::vector<NativeTensor> in = packed_inputs(context);
  double* squares = new_statistics(context, 0);
  const double* means = statistics_of(in[1]);
  visit_dtype(in[0].dtype(), [&]<class T>() {
    const T* x = packed<T>(in[0]);
    for_each_channel(context.attributes<NormAttrs>(), context.input_meta(0).global_shape, context.input_box(0),
                     context.output_box(0), [&](const Channel& at) {
                       const double mean = means[at.statistics];
                       double sum = 0;
                       for (int64_t e = at.first; e < at.first + at.count; ++e) {
                         sum += (wide(x[e]) - mean) * (wide(x[e]) - mean);
                       }
                       squares[at.statistics] += sum;
                     });
  });
}

void norm_apply_kernel(KernelContext& context) {
  if (is_on_device(context)) return norm_apply_on_device(context);
  const auto& a = context.attributes<NormAttrs>();
  const std::vector<NativeTensor> in = packed_inputs(context);
  const double *means = statistics_of(in[1]), *variances = statistics_of(in[2]);
  context.output(0) = NativeTensor::empty(context.output_box(0).size, in[0].dtype());
  visit_dtype(in[0].dtype(), [&]<class T>() {
    const T* x = packed<T>(in[0]);
    T* y = reinterpret_cast<T*>(context.output(0).data());
    const T* weight = a.has_weight ? packed<T>(in[3]) : nullptr;
    const T* bias = a.has_bias ? packed<T>(in[a.has_weight ? 4 : 3]) : nullptr;
    for_each_channel(a, context.input_meta(0).global_shape, context.input_box(0), context.input_box(1),
                     [&](const Channel& at) {
                       const double mean = means[at.statistics];
                       double scale = 1 / std::sqrt(variances[at.statistics] + a.eps);
                       if (weight != nullptr) scale *= wide(weight[at.channel]);
                       const double shift = bias != nullptr ? wide(bias[at.channel]) : 0;
                       for (int64_t e = at.first; e < at.first + at.count; ++e) {
                         y[e] = narrow<T>((wide(x[e]) - mean) * scale + shift);
                       }
                     });
  });
}

void norm_grad_sums_kernel(KernelContext& context) {
  if (is_on_device(context)) return norm_grad_sums_on_device(context);
  const std::vector<NativeTensor> in = packed_inputs(context);
  double *sums = new_statistics(context, 0), *products = new_statistics(context, 1);
  const double* means = statistics_of(in[2]);
  visit_dtype(in[1].dtype(), [&]<class T>() {
    const T *g = packed<T>(in[0]), *x = packed<T>(in[1]);
    const T* weight = in.size() == 4 ? packed<T>(in[3]) : nullptr;
    for_each_channel(context.attributes<NormAttrs>(), context.input_meta(1).global_shape, context.input_box(1),
                     context.output_box(0), [&](const Channel& at) {
                       const double mean = means[at.statistics];
                       double sum = 0, product = 0;
                       for (int64_t e = at.first; e < at.first + at.count; ++e) {
                         sum += wide(g[e]);
                         product += wide(g[e]) * (wide(x[e]) - mean);
                       }
                       const double w = weight != nullptr ? wide(weight[at.channel]) : 1;
                       sums[at.statistics] += w * sum;
                       products[at.statistics] += w * product;
                     });
  });
}

void norm_input_grad_kernel(KernelContext& context) {
  if (is_on_device(context)) return norm_input_grad_on_device(context);
  const auto& a = context.attributes<NormAttrs>();
  const std::vector<NativeTensor> in = packed_inputs(context);
  const double *means = statistics_of(in[2]), *variances = statistics_of(in[3]);
  const double* sums = a.moving ? statistics_of(in[4]) : nullptr;
  const double* products = a.moving ? statistics_of(in[5]) : nullptr;
  const Shape& shape = context.input_meta(1).global_shape;
  const int64_t elements = shape.num_elements(), divisor = a.over_batch ? a.groups : shape[0] * a.groups;
  context.output(0) = NativeTensor::empty(context.output_box(0).size, in[1].dtype());
  visit_dtype(in[1].dtype(), [&]<class T>() {
    const T *g = packed<T>(in[0]), *x = packed<T>(in[1]);
    const T* weight = a.has_weight ? packed<T>(in.back()) : nullptr;
    T* dx = reinterpret_cast<T*>(context.output(0).data());
    for_each_channel(a, shape, context.input_box(1), context.input_box(2), [&](const Channel& at) {
      const double mean = means[at.statistics], r = 1 / std::sqrt(variances[at.statistics] + a.eps);
      const double w = weight != nullptr ? wide(weight[at.channel]) : 1;
      double shift = 0, slope = 0;
      if (a.moving) {
        const double count = static_cast<double>(elements / divisor);
        shift = sums[at.statistics] / count;
        slope = products[at.statistics] / count * r * r;
      }
      for (int64_t e = at.first; e < at.first + at.count; ++e) {
        dx[e] = narrow<T>(r * (wide(g[e]) * w - shift - (wide(x[e]) - mean) * slope));
      }
    });
  });
}

void norm_weight_grad_kernel(KernelContext& context) {
  if (is_on_device(context)) return norm_weight_grad_on_device(context);
  const auto& a = context.attributes<NormAttrs>();
  const std::vector<NativeTensor> in = packed_inputs(context);
  const double *means = statistics_of(in[2]), *variances = statistics_of(in[3]);
  const int64_t channels = context.output_box(0).size[0];
  std::vector<double> dw(static_cast<size_t>(channels)), db(static_cast<size_t>(channels));
  for (size_t i = 0; i < 2; ++i) context.output(i) = NativeTensor::empty({channels}, in[1].dtype());
  visit_dtype(in[1].dtype(), [&]<class T>() {
    const T *g = packed<T>(in[0]), *x = packed<T>(in[1]);
    for_each_channel(a, context.input_meta(1).global_shape, context.input_box(1), context.input_box(2),
                     [&](const Channel& at) {
                       const double mean = means[at.statistics], r = 1 / std::sqrt(variances[at.statistics] + a.eps);
                       double sum = 0, product = 0;
                       for (int64_t e = at.first; e < at.first + at.count; ++e) {
                         sum += wide(g[e]);
                         product += wide(g[e]) * (wide(x[e]) - mean);
                       }
                       dw[static_cast<size_t>(at.channel)] += product * r;
                       db[static_cast<size_t>(at.channel)] += sum;
                     });
    std::ranges::transform(dw, reinterpret_cast<T*>(context.output(0).data()), narrow<T>);
    std::ranges::transform(db, reinterpret_cast<T*>(context.output(1).data()), narrow<T>);
  });
}

}  // namespace dtorch::image
