// The driver's functions that the CUDA runtime doesn't have. libcuda.so.1 is loaded, not linked: where none is,
// libdtorch_cuda.so can still be looked at.
#pragma once
#include <cuda.h>

namespace dtorch::cuda {

struct DriverApi {
  CUresult (*get_error_name)(CUresult, const char**) = nullptr;
  CUresult (*get_error_string)(CUresult, const char**) = nullptr;
  CUresult (*load_module)(CUmodule*, const void*) = nullptr;
  CUresult (*get_function)(CUfunction*, CUmodule, const char*) = nullptr;
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                     void**) = nullptr;
  CUresult (*write_value)(CUstream, CUdeviceptr, cuuint64_t, unsigned) = nullptr;  // null: the driver hasn't it
  // Throws RuntimeFault when there is no driver.
  static const DriverApi& get();
};

}  // namespace dtorch::cuda
