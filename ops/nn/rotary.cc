// rotary_embedding(x [B, H, T, D]): half-split rotation by angle(p, i) = p theta^(-2i/D) with p = first_position +
// global index in T. All dims but the last may be sharded; linear in x. Gradient: the rotation by the opposite angle.
// scalars: [first_position].
#include <cmath>
#include <vector>

#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>

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
template <class T>
void rotate(const T* x, T* y, int64_t outer, int64_t positions, int64_t half, const std::vector<T>& cosines,
            const std::vector<T>& sines) {
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t p = 0; p < positions; ++p, x += 2 * half, y += 2 * half) {
      const T* c = cosines.data() + p * half;
      const T* s = sines.data() + p * half;
      for (int64_t i = 0; i < half; ++i) {
        const T a = x[i], b = x[half + i];
        y[i] = a * c[i] - b * s[i];
        y[half + i] = b * c[i] + a * s[i];
      }
    }
  }
}

template <class T>
void rotate_tensor(const at::Tensor& x, at::Tensor& y, int64_t first, double theta, bool inverse) {
  const int64_t positions = x.size(-2), half = x.size(-1) / 2;
  std::vector<T> cosines(static_cast<size_t>(positions * half)), sines(cosines.size());
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(2 * half));
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(first + p) * frequency;
      cosines[static_cast<size_t>(p * half + i)] = static_cast<T>(std::cos(angle));
      sines[static_cast<size_t>(p * half + i)] = static_cast<T>(inverse ? -std::sin(angle) : std::sin(angle));
    }
  }
  const int64_t plane = 2 * half * positions;
  rotate(x.const_data_ptr<T>(), y.mutable_data_ptr<T>(), plane == 0 ? 0 : x.numel() / plane, positions, half, cosines,
         sines);
}

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RotaryAttrs>();
  const at::Tensor& x = input(context, 0);
  const at::ScalarType type = x.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor from = x.to(wide).contiguous();
  at::Tensor y = at::empty(from.sizes(), from.options());
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
