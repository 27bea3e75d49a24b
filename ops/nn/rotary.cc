// rotary_embedding(x [B, H, T, D]): half-split rotation by angle(p, i) = p theta^(-2i/D) with p = first_position +
// global index in T. All dims but the last may be sharded; linear in x. Gradient: the rotation by the opposite angle.
// scalars: [first_position].
#include <cmath>
#include <utility>
#include <vector>

#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/pow.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

struct RotaryAttrs {
  double theta = 10000.0;
  bool inverse = false;
  template <class V>
  void fields(V& v) {
    v("theta", theta);
    v("inverse", inverse);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  need_floating(context, 0);
  const Shape& x = context.shape(0);
  if (x.ndim() < 2 || x.back() % 2 != 0) {
    throw ShapeError("[rotary_embedding] x has shape " + x.str() + ", expected [..., T, D] with an even D");
  }
  return {{x, context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int16_t blocked[] = {static_cast<int16_t>(ndim)};
  return rule_of({letters(ndim)}, {letters(ndim)}, blocked, {{0}});
}

#if DTORCH_WITH_KERNELS
// Cosines and sines [positions, half] of the angles. Every layer asks for the same ones, forward and backward, so a
// thread keeps its last.
template <class T>
struct Angles {
  int64_t first = 0, positions = 0, half = 0;
  double theta = 0;
  std::vector<T> cosines, sines;
};

template <class T>
const Angles<T>& angles_of(int64_t first, int64_t positions, int64_t half, double theta) {
  thread_local Angles<T> last;
  if (last.first == first && last.positions == positions && last.half == half && last.theta == theta) return last;
  Angles<T> made{first, positions, half, theta, {}, {}};
  made.cosines.resize(static_cast<size_t>(positions * half));
  made.sines.resize(made.cosines.size());
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(2 * half));
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(first + p) * frequency;
      made.cosines[static_cast<size_t>(p * half + i)] = static_cast<T>(std::cos(angle));
      made.sines[static_cast<size_t>(p * half + i)] = static_cast<T>(std::sin(angle));
    }
  }
  return last = std::move(made);
}

// One [positions, 2 half] plane; strides between positions. sign: of the sines.
template <class T>
void rotate_plane(const T* x, int64_t x_stride, T* y, int64_t y_stride, const Angles<T>& angles, T sign) {
  const int64_t half = angles.half;
  for (int64_t p = 0; p < angles.positions; ++p, x += x_stride, y += y_stride) {
    const T* c = angles.cosines.data() + p * half;
    const T* s = angles.sines.data() + p * half;
    for (int64_t i = 0; i < half; ++i) {
      const T a = x[i], b = x[half + i], sine = sign * s[i];
      y[i] = a * c[i] - b * sine;
      y[half + i] = b * c[i] + a * sine;
    }
  }
}

// Heads usually are a permuted view of a product; y lies in memory as x does, so that nothing is copied on either side.
template <class T>
void rotate_tensor(const at::Tensor& x, const at::Tensor& y, int64_t first, double theta, bool inverse) {
  if (x.numel() == 0) return;
  const int64_t outer_dims = x.dim() - 2;
  const Angles<T>& angles = angles_of<T>(first, x.size(-2), x.size(-1) / 2, theta);
  const T* from = x.const_data_ptr<T>();
  T* to = y.mutable_data_ptr<T>();
  const int64_t planes = x.numel() / (x.size(-2) * x.size(-1));
  for (int64_t plane = 0; plane < planes; ++plane) {
    int64_t rest = plane, x_at = 0, y_at = 0;
    for (int64_t dim = outer_dims; dim-- > 0; rest /= x.size(dim)) {
      x_at += rest % x.size(dim) * x.stride(dim);
      y_at += rest % x.size(dim) * y.stride(dim);
    }
    rotate_plane<T>(from + x_at, x.stride(-2), to + y_at, y.stride(-2), angles, inverse ? T(-1) : T(1));
  }
}

// On other devices than the CPU; angles likewise in double.
at::Tensor rotate_on_device(const at::Tensor& x, const KernelContext& context, const RotaryAttrs& attributes) {
  const int64_t positions = x.size(-2), half = x.size(-1) / 2;
  const int64_t first = context.scalar(0).as_int() + context.input_box(0).offset[x.dim() - 2];
  const at::TensorOptions numbers = x.options().dtype(at::kDouble);
  const at::Tensor exponents = at::arange(half, numbers).mul_(-2.0).div_(static_cast<double>(2 * half));
  const at::Tensor frequencies = at::pow(attributes.theta, exponents);
  const at::Tensor angles = at::arange(first, first + positions, numbers).unsqueeze(1).mul(frequencies);
  at::Tensor cosines = angles.cos().to(x.scalar_type()), sines = angles.sin().to(x.scalar_type());
  if (attributes.inverse) sines = sines.neg();
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a.mul(cosines).sub_(b.mul(sines)), b.mul(cosines).add_(a.mul(sines))}, -1);
}

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RotaryAttrs>();
  const at::Tensor& x = input(context, 0);
  const at::ScalarType type = x.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor from = x.to(wide);
  if (!x.is_cpu()) {
    set_output(context, 0, rotate_on_device(from, context, attributes).to(type));
    return;
  }
  if (from.stride(-1) != 1 || !from.is_non_overlapping_and_dense()) from = from.contiguous();
  const at::Tensor y = at::empty_strided(from.sizes(), from.strides(), from.options());
  const Box& box = context.input_box(0);
  const int64_t first = context.scalar(0).as_int() + box.offset[box.ndim() - 2];
  if (wide == at::kDouble) {
    rotate_tensor<double>(from, y, first, attributes.theta, attributes.inverse);
  } else {
    rotate_tensor<float>(from, y, first, attributes.theta, attributes.inverse);
  }
  set_output(context, 0, y.to(type));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  RotaryAttrs attributes = context.attributes<RotaryAttrs>();
  attributes.inverse = !attributes.inverse;
  const Scalar scalars[] = {context.scalar(0)};
  return {record(rotary_embedding_op, attributes, {&context.grad_output(0)}, Where::current(), {.scalars = scalars})};
}

std::vector<Sample> samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{rotary_embedding(in[0])}; };
  auto later = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{rotary_embedding(in[0], {.theta = 500.0, .first_position = 11})};
  };
  return {{.name = "uneven", .inputs = {{{2, 3, 5, 4}}}, .call = call},
          {.name = "one head, later positions", .inputs = {{{3, 1, 7, 6}, kFloat64}}, .call = later}};
}

}  // namespace

constinit OperatorDef rotary_embedding_op = {.name = "rotary_embedding",
                                             .signature = "rotary_embedding(x, theta, first_position) -> Tensor",
                                             .attributes = attribute_codec<RotaryAttrs>(),
                                             .infer = infer,
                                             .rule = rule,
                                             .kernel = DTORCH_KERNEL(kernel),
                                             .gradient = gradient,
                                             .samples = samples,
                                             .linear_in = "x",
                                             .saved_inputs = 0};

Tensor rotary_embedding(const Tensor& x, const RotaryOptions& options, Where where) {
  const Scalar scalars[] = {Scalar::of_int(options.first_position)};
  return record(rotary_embedding_op, RotaryAttrs{options.theta, false}, {&x}, where, {.scalars = scalars});
}

}  // namespace dtorch
