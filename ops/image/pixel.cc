// pixel_shuffle, pixel_unshuffle and channel_shuffle: compositions of reshape and permute, which say what they accept
// for which placements.
#include "ops/image/operators.h"
#include "ops/shape/functions.h"

namespace dtorch {
namespace image {
namespace {

// The three last dims of x, and those before them.
struct Pixels {
  std::vector<int64_t> before;
  int64_t channels = 0, height = 0, width = 0;
};
Pixels pixels_of(const char* op, const Tensor& x, const Where& where) {
  const Shape& shape = x.shape();
  if (shape.ndim() < 3) {
    throw at_line(ShapeError("[" + std::string(op) + "] x has shape " + shape.str() + ", expected [..., C, H, W]"),
                  where);
  }
  return {{shape.begin(), shape.end() - 3}, shape[shape.ndim() - 3], shape[shape.ndim() - 2], shape.back()};
}

std::vector<int64_t> joined(std::vector<int64_t> before, std::initializer_list<int64_t> last) {
  before.insert(before.end(), last.begin(), last.end());
  return before;
}
// The dims before keep their place; `order` is of the others.
std::vector<int64_t> order_after(size_t count, std::initializer_list<int64_t> order) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < count; ++d) dims.push_back(static_cast<int64_t>(d));
  for (int64_t d : order) dims.push_back(static_cast<int64_t>(count) + d);
  return dims;
}

template <Tensor (*kOperator)(const Tensor&, int64_t, Where)>
std::vector<Sample> samples_of(Shape even, Shape uneven, int64_t even_factor, int64_t uneven_factor) {
  const auto call = [](int64_t factor) {
    return [factor](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{kOperator(in[0], factor, Where::current())};
    };
  };
  return {{.name = "even", .inputs = {{even, kFloat64}}, .call = call(even_factor)},
          {.name = "uneven", .inputs = {{uneven, kFloat32}}, .call = call(uneven_factor)}};
}
std::vector<Sample> shuffle_samples() { return samples_of<pixel_shuffle>({2, 8, 2, 6}, {9, 5, 1}, 2, 3); }
std::vector<Sample> unshuffle_samples() { return samples_of<pixel_unshuffle>({2, 1, 4, 12}, {5, 3, 9}, 2, 3); }
std::vector<Sample> channel_samples() { return samples_of<channel_shuffle>({2, 8, 2, 3}, {1, 6, 5}, 2, 3); }

}  // namespace
}  // namespace image

constinit OperatorDef pixel_shuffle_op = {
    .name = "pixel_shuffle",
    .signature = "pixel_shuffle(x, upscale_factor) -> Tensor",
    .samples = image::shuffle_samples,
    .linear_in = "x",
};
constinit OperatorDef pixel_unshuffle_op = {
    .name = "pixel_unshuffle",
    .signature = "pixel_unshuffle(x, downscale_factor) -> Tensor",
    .samples = image::unshuffle_samples,
    .linear_in = "x",
};
constinit OperatorDef channel_shuffle_op = {
    .name = "channel_shuffle",
    .signature = "channel_shuffle(x, groups) -> Tensor",
    .samples = image::channel_samples,
    .linear_in = "x",
};

Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor, Where where) {
  const SourceScope scope(where);
  const image::Pixels p = image::pixels_of("pixel_shuffle", x, where);
  const int64_t r = upscale_factor;
  if (r < 1 || p.channels % (r * r) != 0) {
    throw at_line(ShapeError("[pixel_shuffle] " + std::to_string(p.channels) + " channels of " + x.shape().str() +
                             " aren't a multiple of the square of the factor " + std::to_string(r)),
                  where);
  }
  const int64_t channels = p.channels / (r * r);
  const Tensor apart = reshape(x, image::joined(p.before, {channels, r, r, p.height, p.width}), where);
  const Tensor ordered = permute(apart, image::order_after(p.before.size(), {0, 3, 1, 4, 2}), where);
  return reshape(ordered, image::joined(p.before, {channels, p.height * r, p.width * r}), where);
}

Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor, Where where) {
  const SourceScope scope(where);
  const image::Pixels p = image::pixels_of("pixel_unshuffle", x, where);
  const int64_t r = downscale_factor;
  if (r < 1 || p.height % r != 0 || p.width % r != 0) {
    throw at_line(ShapeError("[pixel_unshuffle] height and width of " + x.shape().str() +
                             " aren't multiples of the factor " + std::to_string(r)),
                  where);
  }
  const int64_t height = p.height / r, width = p.width / r;
  const Tensor apart = reshape(x, image::joined(p.before, {p.channels, height, r, width, r}), where);
  const Tensor ordered = permute(apart, image::order_after(p.before.size(), {0, 2, 4, 1, 3}), where);
  return reshape(ordered, image::joined(p.before, {p.channels * r * r, height, width}), where);
}

Tensor channel_shuffle(const Tensor& x, int64_t groups, Where where) {
  const SourceScope scope(where);
  const Shape& shape = x.shape();
  if (shape.ndim() < 3 || groups < 1 || shape[1] % groups != 0) {
    throw at_line(ShapeError("[channel_shuffle] x has shape " + shape.str() +
                             ", expected [N, C, ...] with C a multiple of " + std::to_string(groups) + " groups"),
                  where);
  }
  std::vector<int64_t> apart = {shape[0], groups, shape[1] / groups};
  apart.insert(apart.end(), shape.begin() + 2, shape.end());
  return reshape(transpose(reshape(x, apart, where), 1, 2, where), {shape.begin(), shape.end()}, where);
}

}  // namespace dtorch
