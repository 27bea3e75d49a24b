// Scaled dot product attention of one device's part, by where its tensors are. Private to this room; empty in builds
// without kernels.
#pragma once
#include "dtorch/kernel.h"

#if DTORCH_WITH_KERNELS
#include <optional>
#include <tuple>
#include <utility>

namespace dtorch::attention {

// Who sees whom: all, query t the keys up to t (of as many), or what `mask` adds to the scores, [.., .., T or 1, S or
// 1].
struct Sight {
  bool is_causal = false;
  std::optional<at::Tensor> mask;
};

// q [B, H, T, D], k and v [B, H, S, D], none of them empty -> the result, and the log-sum-exps of the scores [B, H, T],
// float for half types. On the CPU LibTorch's flash attention, on GPUs likewise for half types without a mask; else
// products of matrices, whose scores take B H T S elements.
std::pair<at::Tensor, at::Tensor> attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const Sight& sight, double scale);
// -> (dq, dk, dv)
std::tuple<at::Tensor, at::Tensor, at::Tensor> attend_gradient(const at::Tensor& g, const at::Tensor& q,
                                                               const at::Tensor& k, const at::Tensor& v,
                                                               const at::Tensor& out, const at::Tensor& lse,
                                                               const Sight& sight, double scale);

}  // namespace dtorch::attention
#endif
