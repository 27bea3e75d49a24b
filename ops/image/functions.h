// User-facing functions of convolutional networks: convolution, pooling, interpolation, batch and group norm. Words,
// argument order and defaults are PyTorch's. All throw ShapeError, DTypeError or PlacementError at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// One number a spatial dim, or one for all of them: 2, {2, 1}.
struct Extents {
  Extents(int64_t all) : sizes{all} {}
  Extents(std::initializer_list<int64_t> each) : sizes(each) {}
  Extents(std::vector<int64_t> each) : sizes(std::move(each)) {}
  std::vector<int64_t> sizes;
};

// --- convolution
// x [N, C, L] or [N, C, H, W] (N may be missing), weight [K, C / groups, kernel sizes], bias [K] or undefined. Batch,
// input channels (the result is then Partial(sum)) and output channels may be sharded; with groups, channels of x and
// weight together where no group is cut. Over a sharded spatial dim the devices exchange the boundary rows that their
// part of the result reads.
struct ConvOptions {
  Extents stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
};
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
              Where where = Where::current());
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {},
              Where where = Where::current());
// weight [C, K / groups, kernel sizes]. A sharded spatial dim is gathered.
struct ConvTransposeOptions {
  Extents stride = 1, padding = 0, output_padding = 0;
  int64_t groups = 1;
  Extents dilation = 1;
};
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {}, Where where = Where::current());
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {}, Where where = Where::current());

// --- pooling
// x [N, C, L] or [N, C, H, W] (N may be missing). Batch and channels may be sharded; over a sharded spatial dim the
// devices exchange the rows that their windows read. Without a stride it is the kernel size.
struct PoolOptions {
  std::optional<Extents> stride = {};
  Extents padding = 0, dilation = 1;
  bool ceil_mode = false;
};
Tensor max_pool1d(const Tensor& x, const Extents& kernel_size, const PoolOptions& options = {},
                  Where where = Where::current());
Tensor max_pool2d(const Tensor& x, const Extents& kernel_size, const PoolOptions& options = {},
                  Where where = Where::current());
struct AvgPoolOptions {
  std::optional<Extents> stride = {};
  Extents padding = 0;
  bool ceil_mode = false, count_include_pad = true;
  std::optional<int64_t> divisor_override = {};
};
Tensor avg_pool1d(const Tensor& x, const Extents& kernel_size, const AvgPoolOptions& options = {},
                  Where where = Where::current());
Tensor avg_pool2d(const Tensor& x, const Extents& kernel_size, const AvgPoolOptions& options = {},
                  Where where = Where::current());
// Result row o of n is over the rows [floor(o L / n), ceil((o + 1) L / n)) of L. A sharded spatial dim whose size isn't
// a multiple of n is gathered.
Tensor adaptive_avg_pool1d(const Tensor& x, const Extents& output_size, Where where = Where::current());
Tensor adaptive_avg_pool2d(const Tensor& x, const Extents& output_size, Where where = Where::current());
Tensor adaptive_max_pool2d(const Tensor& x, const Extents& output_size, Where where = Where::current());

// --- resizing
// mode: "nearest" (x [N, C, L] or [N, C, H, W]), "linear" ([N, C, L]) or "bilinear" ([N, C, H, W]). Either size or
// scale_factor, one number or one a spatial dim.
struct InterpolateOptions {
  std::optional<Extents> size = {};
  std::vector<double> scale_factor = {};
  std::string mode = "nearest";
  bool align_corners = false;
};
Tensor interpolate(const Tensor& x, const InterpolateOptions& options, Where where = Where::current());
// [..., C r r, H, W] -> [..., C, H r, W r] and back. Refused where a shard would be cut.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor, Where where = Where::current());
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor, Where where = Where::current());
// Channels [groups, C / groups] of [N, C, ...] become [C / groups, groups].
Tensor channel_shuffle(const Tensor& x, int64_t groups, Where where = Where::current());
// [N, C, H, W] -> [N, C k, L], the k elements of each of L windows, and back (windows are added up). Sharded spatial
// dims and windows are gathered. N may be missing.
struct UnfoldOptions {
  Extents dilation = 1, padding = 0, stride = 1;
};
Tensor unfold(const Tensor& x, const Extents& kernel_size, const UnfoldOptions& options = {},
              Where where = Where::current());
Tensor fold(const Tensor& x, const Extents& output_size, const Extents& kernel_size, const UnfoldOptions& options = {},
            Where where = Where::current());

// --- normalisation
// (x - mean) / sqrt(variance + eps) * weight + bias of x [N, C, ...]; weight and bias [C] or undefined. Statistics are
// of the global tensor, whatever is sharded: of sums, then of squared distances from the mean, in float64.
// batch_norm: a mean and variance a channel; in evaluation running_mean and running_var [C] are used, in training
// those of x, and the running ones (if defined) come back moved towards them by momentum; values are immutable.
struct BatchNormOptions {
  bool training = false;
  double momentum = 0.1, eps = 1e-5;
};
struct BatchNormResult {
  Tensor y, running_mean, running_var;
};
BatchNormResult batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                           const Tensor& weight = {}, const Tensor& bias = {}, const BatchNormOptions& options = {},
                           Where where = Where::current());
// A mean and variance for every batch element and group of C / num_groups channels. Channels may be sharded; where a
// group is cut its sums are combined.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, Where where = Where::current());
// One group a channel.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                     Where where = Where::current());

}  // namespace dtorch
