#include "ops/image/norm_device.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch::image {

#if DTORCH_WITH_KERNELS
namespace {

// A part of x as [N, C, elements of a channel], float64, and how its channels lie in the statistics.
class Channels {
 public:
  Channels(const KernelContext& context, size_t x, const Box& statistics)
      : over_batch_(context.attributes<NormAttrs>().over_batch),
        box_(context.input_box(x)),
        statistics_(statistics),
        options_(input(context, x).options()) {
    const int64_t group_channels = context.input_meta(x).global_shape[1] / context.attributes<NormAttrs>().groups;
    const at::TensorOptions numbers = options_.dtype(at::kLong);
    groups_ = at::arange(box_.size[1], numbers).add_(box_.offset[1]).div(group_channels, "floor");
    groups_.sub_(statistics.offset.back());
  }
  at::Tensor rows(const KernelContext& context, size_t i) const {
    const int64_t channels = box_.size[0] * box_.size[1];
    const int64_t elements = channels == 0 ? 0 : box_.num_elements() / channels;
    return input(context, i).to(at::kDouble).reshape({box_.size[0], box_.size[1], elements});
  }
  // Of every channel, to be broadcast.
  at::Tensor spread(const at::Tensor& statistics) const {
    const at::Tensor of_channels = statistics.index_select(-1, groups_).unsqueeze(-1);
    return over_batch_ ? of_channels.unsqueeze(0) : of_channels;
  }
  static at::Tensor spread_weight(const at::Tensor& weight) { return weight.to(at::kDouble).unsqueeze(-1); }
  // [N, C, ...] added up to statistics. A product, since its order doesn't depend on chance.
  at::Tensor total(const at::Tensor& rows) const {
    at::Tensor of_channels = rows.sum(-1);
    if (over_batch_) of_channels = of_channels.sum(0, /*keepdim=*/true);
    const at::Tensor all = at::arange(statistics_.size.back(), groups_.options());
    const at::Tensor sums = at::matmul(of_channels, groups_.unsqueeze(1).eq(all).to(at::kDouble));
    return sums.reshape(sizes_of(statistics_.size));
  }

 private:
  const bool over_batch_;
  const Box& box_;
  const Box& statistics_;
  const at::TensorOptions options_;
  at::Tensor groups_;  // of each channel, among the part of the statistics
};

at::Tensor scale_of(const Channels& channels, const at::Tensor& variance, double eps) {
  return channels.spread(variance).add(eps).rsqrt_();
}
void set_result(KernelContext& context, size_t i, const at::Tensor& result) {
  set_output(context, i, result.to(scalar_type(context.output_meta(i).dtype)).reshape(output_sizes(context, i)));
}

}  // namespace

bool is_on_device(const KernelContext& context) { return !input(context, 0).is_cpu(); }

void norm_sums_on_device(KernelContext& context) {
  const Channels channels(context, 0, context.output_box(0));
  set_result(context, 0, channels.total(channels.rows(context, 0)));
}

void norm_squares_on_device(KernelContext& context) {
  const Channels channels(context, 0, context.output_box(0));
  set_result(context, 0, channels.total(channels.rows(context, 0).sub(channels.spread(input(context, 1))).square_()));
}

void norm_apply_on_device(KernelContext& context) {
  const auto& a = context.attributes<NormAttrs>();
  const Channels channels(context, 0, context.input_box(1));
  at::Tensor scale = scale_of(channels, input(context, 2), a.eps);
  if (a.has_weight) scale = scale.mul(Channels::spread_weight(input(context, 3)));
  at::Tensor y = channels.rows(context, 0).sub(channels.spread(input(context, 1))).mul_(scale);
  if (a.has_bias) y.add_(Channels::spread_weight(input(context, a.has_weight ? 4 : 3)));
  set_result(context, 0, y);
}

void norm_grad_sums_on_device(KernelContext& context) {
  const Channels channels(context, 1, context.output_box(0));
  at::Tensor g = channels.rows(context, 0);
  if (context.num_inputs() == 4) g = g.mul(Channels::spread_weight(input(context, 3)));
  set_result(context, 0, channels.total(g));
  set_result(context, 1, channels.total(channels.rows(context, 1).sub(channels.spread(input(context, 2))).mul_(g)));
}

void norm_input_grad_on_device(KernelContext& context) {
  const auto& a = context.attributes<NormAttrs>();
  const Channels channels(context, 1, context.input_box(2));
  const at::Tensor r = scale_of(channels, input(context, 3), a.eps);
  at::Tensor dx = channels.rows(context, 0);
  if (a.has_weight) dx = dx.mul(Channels::spread_weight(input(context, context.num_inputs() - 1)));
  if (a.moving) {
    const Shape& shape = context.input_meta(1).global_shape;
    const auto count = static_cast<double>(shape.num_elements() / (a.over_batch ? a.groups : shape[0] * a.groups));
    const at::Tensor slope = channels.spread(input(context, 5)).div(count).mul_(r).mul_(r);
    const at::Tensor distance = channels.rows(context, 1).sub(channels.spread(input(context, 2)));
    dx = dx.sub(channels.spread(input(context, 4)).div(count)).sub_(distance.mul_(slope));
  }
  set_result(context, 0, dx.mul(r));
}

void norm_weight_grad_on_device(KernelContext& context) {
  const auto& a = context.attributes<NormAttrs>();
  const Channels channels(context, 1, context.input_box(2));
  const at::Tensor g = channels.rows(context, 0);
  const at::Tensor distance = channels.rows(context, 1).sub(channels.spread(input(context, 2)));
  set_result(context, 0, distance.mul_(g).mul_(scale_of(channels, input(context, 3), a.eps)).sum(-1).sum(0));
  set_result(context, 1, g.sum(-1).sum(0));
}
#else
bool is_on_device(const KernelContext&) { return false; }
void norm_sums_on_device(KernelContext&) {}
void norm_squares_on_device(KernelContext&) {}
void norm_apply_on_device(KernelContext&) {}
void norm_grad_sums_on_device(KernelContext&) {}
void norm_input_grad_on_device(KernelContext&) {}
void norm_weight_grad_on_device(KernelContext&) {}
#endif

}  // namespace dtorch::image
