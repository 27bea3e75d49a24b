// A device whose memory the host can't touch: LibTorch's device "privateuseone", where every function of LibTorch that
// is called through its dispatcher is computed on the CPU by copies, and a pointer to a tensor's contents leads to a
// page that nobody may read or write. A kernel that runs there runs on any device that LibTorch has functions for.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dtorch::test {

// Once a process, before the first tensor.
void define_guarded_device();
at::Tensor to_guarded(const at::Tensor& tensor);  // the same sizes and strides
at::Tensor from_guarded(const at::Tensor& tensor);
// How often contents were looked at, which waits for a device: item(), nonzero() and others whose sizes are data.
int64_t num_looks();

}  // namespace dtorch::test
