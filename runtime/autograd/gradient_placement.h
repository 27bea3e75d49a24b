// Placements of gradients (training.md), axis by axis, and how they are added. Private to this room.
#pragma once
#include "runtime/client/tensor.h"

namespace dtorch {

// The placements that grad() reports: the tensor's own, Replicate where it is Partial.
Layout gradient_layout(const TensorMeta& meta);
// Brings a gradient to a layout and dtype that the tensor `meta` allows, leaving Partial(sum) on its Replicate axes
// pending. A pending gradient keeps a wider dtype.
Tensor normalize_gradient(const Tensor& gradient, const TensorMeta& meta, const Where& where);
// The sum of two normalised gradients of one tensor: pending where one of them is; pending halves are added in float32.
Tensor add_gradients(const Tensor& a, const Tensor& b, const Where& where);
// Reduces what is pending and casts to the tensor's dtype.
Tensor reduce_gradient(const Tensor& gradient, const TensorMeta& meta, const Where& where);

}  // namespace dtorch
