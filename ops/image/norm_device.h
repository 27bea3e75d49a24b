// The kernels of norm.cc for other devices than the CPU, by LibTorch; in builds without it they are never called.
// Private to this room.
#pragma once
#include "ops/image/norm.h"

namespace dtorch::image {

// Whether input 0's memory isn't the host's.
bool is_on_device(const KernelContext& context);
void norm_sums_on_device(KernelContext& context);
void norm_squares_on_device(KernelContext& context);
void norm_apply_on_device(KernelContext& context);
void norm_grad_sums_on_device(KernelContext& context);
void norm_input_grad_on_device(KernelContext& context);
void norm_weight_grad_on_device(KernelContext& context);

}  // namespace dtorch::image
