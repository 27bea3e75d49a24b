// Convolution, pooling, resizing and norms over uneven, empty and narrow parts.
#include "tests/layouts/calls.h"

namespace dtorch::test {

std::vector<Sample> image_calls() {
  std::vector<Sample> calls = {
      call("stride 2, kernel 2", {f64({1, 3, 9, 8}), f64({4, 3, 2, 2}), f64({4})},
           [](const In& in) { return Out{conv2d(in[0], in[1], in[2], {.stride = 2})}; }),
      call("dilated", {f64({2, 2, 9, 7}), f64({3, 2, 3, 2})},
           [](const In& in) {
             return Out{conv2d(in[0], in[1], {}, {.padding = {2, 1}, .dilation = {2, 1}})};
           }),
      call("uneven strides", {f64({1, 2, 11, 5}), f64({2, 2, 3, 3})},
           [](const In& in) {
             return Out{conv2d(in[0], in[1], {}, {.stride = {3, 2}, .padding = 1})};
           }),
      call("a kernel wider than a part", {f64({1, 2, 6, 3}), f64({2, 2, 5, 1})},
           [](const In& in) {
             return Out{conv2d(in[0], in[1], {}, {.padding = {2, 0}})};
           }),
      call("groups", {f64({2, 4, 5, 3}), f64({6, 2, 3, 1}), f64({6})},
           [](const In& in) {
             return Out{conv2d(in[0], in[1], in[2], {.padding = {1, 0}, .groups = 2})};
           }),
      call("depthwise", {f64({2, 3, 6}), f64({3, 1, 3}), f64({3})},
           [](const In& in) { return Out{conv1d(in[0], in[1], in[2], {.padding = 1, .groups = 3})}; }),
      call("without a batch", {f64({2, 7}), f64({3, 2, 3})},
           [](const In& in) { return Out{conv1d(in[0], in[1], {}, {.padding = 1})}; }),
      call("one dim, stride 3", {f64({2, 2, 10}), f64({3, 2, 2})},
           [](const In& in) { return Out{conv1d(in[0], in[1], {}, {.stride = 3})}; }),
      call("two in a row", {f64({1, 2, 8, 4}), f64({3, 2, 3, 3}), f64({2, 3, 3, 3})},
           [](const In& in) {
             return Out{conv2d(relu(conv2d(in[0], in[1], {}, {.padding = 1})), in[2], {}, {.padding = 1})};
           }),
      call("transposed", {f64({1, 2, 4, 3}), f64({2, 3, 3, 2}), f64({3})},
           [](const In& in) {
             return Out{conv_transpose2d(in[0], in[1], in[2], {.stride = 2, .padding = 1, .output_padding = 1})};
           }),
      call("transposed, one dim", {f64({2, 2, 5}), f64({2, 1, 3})},
           [](const In& in) { return Out{conv_transpose1d(in[0], in[1], {}, {.groups = 1})}; }),
      call("max pooling", {distinct({1, 2, 9, 6})},
           [](const In& in) {
             return Out{max_pool2d(in[0], 2), max_pool2d(in[0], 3, {.stride = 2, .padding = 1}),
                        max_pool2d(in[0], 2, {.ceil_mode = true})};
           }),
      call("dilated max pooling", {distinct({2, 1, 11})},
           [](const In& in) { return Out{max_pool1d(in[0], 3, {.stride = 1, .dilation = 2})}; }),
      call("average pooling", {f64({1, 2, 9, 6})},
           [](const In& in) {
             return Out{avg_pool2d(in[0], 3, {.stride = 2, .padding = 1}), avg_pool2d(in[0], 2, {.ceil_mode = true}),
                        avg_pool2d(in[0], 3, {.padding = 1, .count_include_pad = false}),
                        avg_pool2d(in[0], 2, {.divisor_override = 3})};
           }),
      call("adaptive pooling", {distinct({1, 2, 8, 6})},
           [](const In& in) {
             return Out{adaptive_avg_pool2d(in[0], {4, 3}), adaptive_avg_pool2d(in[0], {3, 5}),
                        adaptive_max_pool2d(in[0], {3, 2}), adaptive_avg_pool2d(in[0], 1)};
           }),
      call("adaptive pooling, one dim", {f64({2, 3, 9})},
           [](const In& in) {
             return Out{adaptive_avg_pool1d(in[0], 3), adaptive_avg_pool1d(in[0], 4)};
           }),
      call("nearest", {f64({1, 2, 5, 4})},
           [](const In& in) {
             return Out{interpolate(in[0], {.size = Extents{7, 9}}), interpolate(in[0], {.scale_factor = {2.0}}),
                        interpolate(in[0], {.size = Extents{3, 2}})};
           }),
      call("bilinear resizing", {f64({1, 2, 5, 4})},
           [](const In& in) {
             return Out{interpolate(in[0], {.size = Extents{8, 3}, .mode = "bilinear"}),
                        interpolate(in[0], {.size = Extents{8, 3}, .mode = "bilinear", .align_corners = true})};
           }),
      call("pixels shuffled", {f64({2, 8, 3, 4})}, [](const In& in) { return Out{pixel_shuffle(in[0], 2)}; }),
      call("pixels unshuffled", {f64({2, 2, 6, 4})}, [](const In& in) { return Out{pixel_unshuffle(in[0], 2)}; }),
      call("channels shuffled", {f64({2, 6, 3})}, [](const In& in) { return Out{channel_shuffle(in[0], 3)}; }),
      call("windows unfolded", {f64({1, 2, 6, 5})},
           [](const In& in) {
             return Out{unfold(in[0], Extents{2, 3}, {.padding = 1, .stride = 2})};
           }),
      call("windows folded", {f64({1, 8, 12})},
           [](const In& in) {
             return Out{fold(in[0], {4, 5}, 2)};
           }),
      call("batch norm in training", {f64({5, 3, 4}), f64({3}), f64({3}), fixed({3}), positive({3})},
           [](const In& in) {
             const BatchNormResult r =
                 batch_norm(in[0], in[3], in[4].detach(), in[1], in[2], {.training = true, .momentum = 0.3});
             return Out{r.y, r.running_mean, r.running_var};
           }),
      call("batch norm in evaluation", {f64({5, 3, 4}), f64({3}), fixed({3}), positive({3})},
           [](const In& in) { return Out{batch_norm(in[0], in[2], in[3].detach(), in[1]).y}; }),
      call("batch norm of a matrix", {f64({7, 3})},
           [](const In& in) { return Out{batch_norm(in[0], {}, {}, {}, {}, {.training = true}).y}; }),
      call("group norm that cuts groups", {f64({2, 6, 5}), f64({6}), f64({6})},
           [](const In& in) {
             return Out{group_norm(in[0], 2, in[1], in[2]), group_norm(in[0], 3), group_norm(in[0], 1, in[1])};
           }),
      call("instance norm", {f64({2, 3, 5, 2})}, [](const In& in) { return Out{instance_norm(in[0])}; }),
      call("a small network", {f64({2, 2, 8, 6}), f64({4, 2, 3, 3}), f64({4}), f64({4, 4})},
           [](const In& in) {
             const Tensor y = relu(conv2d(in[0], in[1], in[2], {.padding = 1}));
             return Out{matmul(mean(max_pool2d(y, 2), {2, 3}), in[3])};
           }),
  };
  for (Sample& sample : calls) sample.tolerance = 1e-9;
  return calls;
}

}  // namespace dtorch::test
