// Kernels of norm.cc; on the CPU on memory alone, elsewhere norm_device.h. Statistics are float64. Private to this
// room.
#pragma once
#include "ops/image/norm.h"

namespace dtorch::image {

void norm_sums_kernel(KernelContext& context);
void norm_squares_kernel(KernelContext& context);
void norm_apply_kernel(KernelContext& context);
void norm_grad_sums_kernel(KernelContext& context);
void norm_input_grad_kernel(KernelContext& context);
void norm_weight_grad_kernel(KernelContext& context);

}  // namespace dtorch::image
