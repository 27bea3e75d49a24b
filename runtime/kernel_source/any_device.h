// Where operators run on a device that isn't the CPU: which kernels work on tensors of any device that LibTorch has,
// since they call LibTorch through its dispatcher and look at no memory; which have kernels written for it; which stay
// on the host, and why. tests/kernel_source checks that every operator with a kernel is where these lists say.
#pragma once
#include <string>
#include <string_view>

namespace dtorch::kernel_source {

bool runs_on_any_device(std::string_view op);
// In the CUDA backend.
bool has_own_kernel(std::string_view op);
// Null for operators that a device runs.
const char* reason_for_host(std::string_view op);
// Those as lines of docs/gpu.md.
std::string table_of_host_operators();

}  // namespace dtorch::kernel_source
