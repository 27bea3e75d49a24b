// What the files of pooling share. Private to this room.
#pragma once
#include <limits>

#include "ops/image/operators.h"

#if DTORCH_WITH_KERNELS
#include "dtorch/kernel.h"
#endif

namespace dtorch::image {

// One entry a spatial dim in every list.
struct PoolAttrs {
  std::vector<int64_t> size;     // of x
  std::vector<int64_t> in, out;  // sizes; in: of the tensor that the kernel gets
  std::vector<int64_t> kernel, stride, padding, dilation;
  // 1: the dim is sharded, each part of x begins with what the part of the result reads (halo.h), padding included.
  std::vector<int64_t> cut;
  bool ceil_mode = false, count_include_pad = true;
  int64_t divisor = 0;  // 0: the number of elements in the window
  template <class V>
  void fields(V& v) {
    v("size", size);
    v("in", in);
    v("out", out);
    v("kernel", kernel);
    v("stride", stride);
    v("padding", padding);
    v("dilation", dilation);
    v("cut", cut);
    v("ceil_mode", ceil_mode);
    v("count_include_pad", count_include_pad);
    v("divisor", divisor);
  }
  size_t num_spatial() const { return in.size(); }
  bool any_cut() const;
  // In a tensor of `ndim` dims: the spatial ones are the last.
  int64_t dim_of(size_t s, size_t ndim) const { return static_cast<int64_t>(ndim - (num_spatial() - s)); }
  // Rows of x that one result reads.
  int64_t extent(size_t s) const { return dilation[s] * (kernel[s] - 1) + 1; }
};

inline constexpr double kLeast = -std::numeric_limits<double>::infinity();

// Of x, and of (g[, x]): sizes `out` and `in`.
std::vector<OutputMeta> pool_infer(const InferContext& context);
std::vector<OutputMeta> pool_grad_infer(const InferContext& context);
// Batch, channels and cut dims may be sharded. A mean is linear in x, a maximum passes Partial(max), their gradients
// are linear in g.
Rule mean_pool_rule(const InferContext& context, std::span<const OutputMeta>);
Rule max_pool_rule(const InferContext& context, std::span<const OutputMeta>);
Rule pool_grad_rule(const InferContext& context, std::span<const OutputMeta>);

// x with what the devices read where spatial dims are sharded; sets cut, in and, of cut dims, padding.
Tensor with_windows(const char* op, Tensor x, PoolAttrs* attributes, double outside, const Where& where);

#if DTORCH_WITH_KERNELS
// The kernels work on two spatial dims; a single one is the second of them.
std::vector<int64_t> plane(const std::vector<int64_t>& of, int64_t first = 1);
at::Tensor to_plane(const PoolAttrs& attributes, const at::Tensor& x);
at::Tensor from_plane(const PoolAttrs& attributes, const at::Tensor& x);
// x (two spatial dims) without the rows of cut dims that the local result of these sizes doesn't read.
at::Tensor read_part(const PoolAttrs& attributes, at::Tensor x, at::IntArrayRef out_sizes);
#endif

}  // namespace dtorch::image
