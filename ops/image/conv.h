// What the files of convolution share. Private to this room.
#pragma once
#include "ops/image/operators.h"

namespace dtorch::image {

// One entry a spatial dim in every list.
struct ConvAttrs {
  std::vector<int64_t> in, kernel, out;  // sizes; in: of the tensor that the kernel gets
  std::vector<int64_t> stride, padding, dilation, output_padding;
  // 1: the dim is sharded, each part of x begins with what the part of the result reads (halo.h), padding included.
  std::vector<int64_t> cut;
  int64_t in_channels = 0, out_channels = 0, groups = 1;
  bool transposed = false, has_bias = false, batched = true;
  template <class V>
  void fields(V& v) {
    v("in", in);
    v("kernel", kernel);
    v("out", out);
    v("stride", stride);
    v("padding", padding);
    v("dilation", dilation);
    v("output_padding", output_padding);
    v("cut", cut);
    v("in_channels", in_channels);
    v("out_channels", out_channels);
    v("groups", groups);
    v("transposed", transposed);
    v("has_bias", has_bias);
    v("batched", batched);
  }
  int64_t channel_dim() const { return batched ? 1 : 0; }
  // Of x and the result.
  int64_t dim_of(size_t s) const { return channel_dim() + 1 + static_cast<int64_t>(s); }
  // Rows of x that one result reads.
  int64_t extent(size_t s) const { return dilation[s] * (kernel[s] - 1) + 1; }
};

std::vector<OutputMeta> conv_infer(const InferContext& context);
std::vector<OutputMeta> conv_input_grad_infer(const InferContext& context);
std::vector<OutputMeta> conv_weight_grad_infer(const InferContext& context);
Rule conv_rule(const InferContext& context, std::span<const OutputMeta>);
Rule conv_input_grad_rule(const InferContext& context, std::span<const OutputMeta>);
Rule conv_weight_grad_rule(const InferContext& context, std::span<const OutputMeta>);

}  // namespace dtorch::image
