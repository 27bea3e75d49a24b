// Return codes of the CUDA runtime and of the driver as RuntimeFaults.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

namespace dtorch::cuda {

// Throw RuntimeFault "call: name: what it means" unless the code is success. The runtime's last error is taken back, so
// that the next call doesn't give it again (one that broke the context stays).
void check(cudaError_t code, const char* call);
void check(CUresult code, const char* call);
std::string text_of(cudaError_t code);

}  // namespace dtorch::cuda

#define DTORCH_CUDA(call) ::dtorch::cuda::check(call, #call)
