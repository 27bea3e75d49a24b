// Operators whose kernels run on tensors of any device that LibTorch has: they call LibTorch through its dispatcher and
// look at no memory. tests/kernel_source checks every one of them on a device without memory.
#pragma once
#include <string_view>

namespace dtorch::kernel_source {

bool runs_on_any_device(std::string_view op);

}  // namespace dtorch::kernel_source
