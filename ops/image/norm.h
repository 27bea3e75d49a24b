// Normalising x [N, C, ...] by the mean and variance of groups of its channels: what batch_norm and group_norm share.
// Private to this room.
#pragma once
#include "ops/image/operators.h"

namespace dtorch::image {

// Over which elements statistics are taken: those of a group of channels, of the whole batch (statistics [groups]) or
// of each of its elements ([N, groups]).
struct NormAttrs {
  int64_t groups = 1;
  bool over_batch = false;
  // The shards of channels, and of the groups of statistics, are the same whole groups; else statistics aren't sharded
  // by channels.
  bool whole_groups = false;
  bool has_weight = false, has_bias = false;
  bool moving = true;  // the statistics depend on x (not so in evaluation)
  double eps = 1e-5;
  template <class V>
  void fields(V& v) {
    v("groups", groups);
    v("over_batch", over_batch);
    v("whole_groups", whole_groups);
    v("has_weight", has_weight);
    v("has_bias", has_bias);
    v("moving", moving);
    v("eps", eps);
  }
};

// Mean and sum of squared distances from it, float64, exact over all shards (of the mean first, then of the squares).
struct NormStatistics {
  Tensor mean, squares;
  int64_t count = 0;  // elements of each
};
// x must not be pending. Throws PlacementError of `op` when implicit redistribution is off and shards are combined.
NormStatistics norm_statistics(const char* op, const Tensor& x, const NormAttrs& attributes, const Where& where);

// (x - mean) / sqrt(variance + eps) * weight + bias with its gradient; mean and variance are constants to the user.
Tensor normalize(const char* op, const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                 const Tensor& bias, NormAttrs attributes, const Where& where);

// Whether the axes that shard x's channels split them into whole groups, and the groups alike.
bool splits_whole_groups(const Tensor& x, int64_t groups);

// Throws ShapeError or DTypeError unless x is floating [N, C, ...] and weight and bias are undefined or [C] of its
// dtype.
void check_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const Where& where);

}  // namespace dtorch::image
