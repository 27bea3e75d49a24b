// Prepared kernels of operators that LibTorch computes with a structured kernel which has no iterator: its impl()
// writes into an output that is given. Empty in builds without kernels.
#pragma once
#include "ops/def/prepared_kernel.h"

#if DTORCH_WITH_KERNELS
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>

namespace dtorch::math {

// LibTorch's class with what is missing to make an object of it; the output is an argument of impl().
template <class Structured>
class WithoutMeta final : public Structured {
  const at::Tensor& maybe_get_output(int64_t) override { return none_; }
  at::Tensor none_;
};

}  // namespace dtorch::math
#endif
