// Cases of libtorch_cases_aten.h.
#include <ATen/ops/adaptive_avg_pool1d.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/avg_pool1d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/channel_shuffle.h>
#include <ATen/ops/col2im.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose1d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/pixel_shuffle.h>
#include <ATen/ops/pixel_unshuffle.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/upsample_nearest1d.h>
#include <ATen/ops/upsample_nearest2d.h>

#include "tests/ops/libtorch_cases_aten.h"

namespace dtorch::test {
namespace {

using at::IntArrayRef;

void add_convolutions(LibTorchCases& cases) {
  DTORCH_CASE("conv1d", ({normal({2, 4, 9}), normal({6, 2, 3}), normal({6})}),
              conv1d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .dilation = 2, .groups = 2}),
              at::conv1d(in[0], in[1], in[2], 2, 1, 2, 2));
  DTORCH_CASE("conv1d", ({normal({4, 9}), normal({6, 4, 3})}), conv1d(in[0], in[1]), at::conv1d(in[0], in[1]));
  DTORCH_CASE("conv2d", ({normal({2, 3, 9, 8}), normal({6, 3, 3, 2}), normal({6})}),
              conv2d(in[0], in[1], in[2], {.stride = {2, 1}, .padding = {1, 0}}),
              at::conv2d(in[0], in[1], in[2], IntArrayRef{2, 1}, IntArrayRef{1, 0}));
  DTORCH_CASE("conv2d", ({normal({2, 4, 9, 8}), normal({4, 1, 3, 3})}),
              conv2d(in[0], in[1], {}, {.padding = 2, .dilation = 2, .groups = 4}),
              at::conv2d(in[0], in[1], {}, 1, 2, 2, 4));
  DTORCH_CASE("conv_transpose1d", ({normal({2, 4, 9}), normal({4, 3, 3}), normal({6})}),
              conv_transpose1d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2}),
              at::conv_transpose1d(in[0], in[1], in[2], 2, 1, 1, 2));
  DTORCH_CASE("conv_transpose2d", ({normal({2, 4, 5, 6}), normal({4, 3, 3, 2}), normal({3})}),
              conv_transpose2d(in[0], in[1], in[2], {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}}),
              at::conv_transpose2d(in[0], in[1], in[2], IntArrayRef{2, 1}, IntArrayRef{1, 0}, 0, 1, IntArrayRef{1, 2}));
}

void add_pools(LibTorchCases& cases) {
  DTORCH_CASE("max_pool1d", ({distinct({2, 3, 9})}),
              max_pool1d(in[0], 3, {.stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true}),
              at::max_pool1d(in[0], 3, 2, 1, 2, true));
  DTORCH_CASE("max_pool2d", ({distinct({2, 3, 9, 8})}), max_pool2d(in[0], {3, 2}, {.padding = {1, 0}}),
              at::max_pool2d(in[0], IntArrayRef{3, 2}, {}, IntArrayRef{1, 0}));
  DTORCH_CASE("avg_pool1d", ({normal({2, 3, 9})}), avg_pool1d(in[0], 3, {.stride = 2, .padding = 1}),
              at::avg_pool1d(in[0], 3, 2, 1));
  DTORCH_CASE("avg_pool2d", ({normal({2, 3, 9, 8})}),
              avg_pool2d(in[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false}),
              at::avg_pool2d(in[0], 3, 2, 1, true, false));
  DTORCH_CASE("avg_pool2d", ({normal({3, 9, 8})}), avg_pool2d(in[0], {3, 2}, {.divisor_override = 5}),
              at::avg_pool2d(in[0], IntArrayRef{3, 2}, {}, 0, false, true, 5));
  DTORCH_CASE("adaptive_avg_pool1d", ({normal({2, 3, 9})}), adaptive_avg_pool1d(in[0], 4),
              at::adaptive_avg_pool1d(in[0], 4));
  DTORCH_CASE("adaptive_avg_pool2d", ({normal({2, 3, 9, 8})}), adaptive_avg_pool2d(in[0], {4, 2}),
              at::adaptive_avg_pool2d(in[0], IntArrayRef{4, 2}));
  DTORCH_CASE("adaptive_avg_pool2d", ({normal({2, 3, 9, 8})}), adaptive_avg_pool2d(in[0], 1),
              at::adaptive_avg_pool2d(in[0], IntArrayRef{1, 1}));
  DTORCH_CASE("adaptive_max_pool2d", ({distinct({2, 3, 9, 8})}), adaptive_max_pool2d(in[0], {4, 2}),
              std::get<0>(at::adaptive_max_pool2d(in[0], IntArrayRef{4, 2})));
}

InterpolateOptions by_factors(const std::string& mode, std::vector<double> factors) {
  return {.scale_factor = std::move(factors), .mode = mode};
}
InterpolateOptions to_size(const std::string& mode, const Extents& size, bool align_corners) {
  return {.size = size, .mode = mode, .align_corners = align_corners};
}

void add_resizing(LibTorchCases& cases) {
  DTORCH_CASE("interpolate", ({normal({2, 3, 9})}), interpolate(in[0], to_size("nearest", 13, false)),
              at::upsample_nearest1d(in[0], IntArrayRef{13}));
  DTORCH_CASE("interpolate", ({normal({2, 3, 9, 5})}), interpolate(in[0], by_factors("nearest", {2, 1.3})),
              at::upsample_nearest2d(in[0], IntArrayRef{18, 6}, 2.0, 1.3));
  DTORCH_CASE("interpolate", ({normal({2, 3, 9, 5})}), interpolate(in[0], by_factors("bilinear", {0.6, 1.3})),
              at::upsample_bilinear2d(in[0], IntArrayRef{5, 6}, false, 0.6, 1.3));
  DTORCH_CASE("interpolate", ({normal({2, 3, 9, 5})}), interpolate(in[0], to_size("bilinear", {4, 11}, true)),
              at::upsample_bilinear2d(in[0], IntArrayRef{4, 11}, true));
  DTORCH_CASE("interpolate", ({normal({2, 3, 9})}), interpolate(in[0], to_size("linear", 14, false)),
              at::upsample_linear1d(in[0], IntArrayRef{14}, false));
  DTORCH_CASE("unfold", ({normal({2, 3, 7, 5})}), unfold(in[0], {3, 2}, {.padding = 1, .stride = 2}),
              at::im2col(in[0], IntArrayRef{3, 2}, IntArrayRef{1, 1}, IntArrayRef{1, 1}, IntArrayRef{2, 2}));
  DTORCH_CASE(
      "fold", ({normal({2, 12, 6})}), fold(in[0], {5, 4}, 2, {.stride = {2, 1}}),
      at::col2im(in[0], IntArrayRef{5, 4}, IntArrayRef{2, 2}, IntArrayRef{1, 1}, IntArrayRef{0, 0}, IntArrayRef{2, 1}));
  DTORCH_CASE("pixel_shuffle", ({normal({2, 8, 3, 5})}), pixel_shuffle(in[0], 2), at::pixel_shuffle(in[0], 2));
  DTORCH_CASE("pixel_unshuffle", ({normal({2, 3, 6, 9})}), pixel_unshuffle(in[0], 3), at::pixel_unshuffle(in[0], 3));
  DTORCH_CASE("channel_shuffle", ({normal({2, 6, 3, 5})}), channel_shuffle(in[0], 3), at::channel_shuffle(in[0], 3));
}

// Within 1e-6: statistics are in float64, so that shards combine exactly.
void add_norms(LibTorchCases& cases) {
  DTORCH_CASE_WITHIN(1e-6, "batch_norm", ({normal({4, 3, 9, 8}), normal({3}), normal({3})}),
                     batch_norm(in[0], {}, {}, in[1], in[2], {.training = true}).y,
                     at::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false));
  cases.add(
      "batch_norm", {normal({4, 3, 9}), normal({3}), positive({3})},
      [](const Ours& in) {
        const BatchNormResult result =
            batch_norm(in[0], in[1].detach(), in[2].detach(), {}, {}, {.training = true, .momentum = 0.3});
        return Ours{result.y, result.running_mean, result.running_var, 0 * in[1], 0 * in[2]};
      },
      [](const Theirs& in) {
        const at::Tensor mean = in[1].detach().clone(), variance = in[2].detach().clone();
        const at::Tensor y = at::batch_norm(in[0], {}, {}, mean, variance, true, 0.3, 1e-5, false);
        return Theirs{y, mean, variance, in[1].mul(0), in[2].mul(0)};
      },
      1e-6);
  cases.add(
      "batch_norm", {normal({4, 3}), normal({3}), positive({3}), normal({3}), normal({3})},
      [](const Ours& in) {
        return Ours{batch_norm(in[0], in[1].detach(), in[2].detach(), in[3], in[4]).y, 0 * in[1], 0 * in[2]};
      },
      [](const Theirs& in) {
        const at::Tensor y =
            at::batch_norm(in[0], in[3], in[4], in[1].detach(), in[2].detach(), false, 0.1, 1e-5, false);
        return Theirs{y, in[1].mul(0), in[2].mul(0)};
      },
      1e-6);
  DTORCH_CASE_WITHIN(1e-6, "group_norm", ({normal({4, 6, 9, 8}), normal({6}), normal({6})}),
                     group_norm(in[0], 2, in[1], in[2]), at::group_norm(in[0], 2, in[1], in[2], 1e-5, false));
  DTORCH_CASE_WITHIN(1e-6, "instance_norm", ({normal({4, 3, 9}), normal({3}), normal({3})}),
                     instance_norm(in[0], in[1], in[2]),
                     at::instance_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false));
}

}  // namespace

void add_image_cases(LibTorchCases& cases) {
  add_convolutions(cases);
  add_pools(cases);
  add_resizing(cases);
  add_norms(cases);
}

}  // namespace dtorch::test
