// scaled_dot_product_attention with a mask or dropout. Private to this room.
#pragma once
#include "ops/nn/functions.h"

namespace dtorch::attention {

Tensor masked_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                        double scale, const Where& where);

}  // namespace dtorch::attention
