// libdtorch_cuda.so: where it is, whether it fits, and what it gives. Programs don't link it, so that they start where
// no CUDA is; it is loaded by `--device cuda`.
#pragma once
#include <string>
#include <vector>

namespace dtorch {

class AcceleratorLibrary;  // runtime/accelerator/accelerator.h

// What the library says of itself before anything else of it is used; made by its only exported function,
// `extern "C" const dtorch::CudaLibraryEntry* dtorch_cuda_entry()`.
struct CudaLibraryEntry {
  const char* dtorch_version;
  const char* torch_version;
  int cuda_version;                       // 13000
  AcceleratorLibrary& (*accelerators)();  // the process's; throws RuntimeFault
};

// What this program was built with.
struct CudaBuild {
  int cuda_version = 0;  // 0: without the CUDA backend
  std::string dtorch_version;
  std::string torch_version;
  std::vector<std::string> folders;  // where the library is looked for, beside the program's own
};
CudaBuild cuda_build();

// Files to try, the first that exists first: DTORCH_CUDA_LIBRARY alone when it is set; else beside the program, in
// ../lib, in the build's folders.
std::vector<std::string> cuda_library_paths(const std::string& program, const std::vector<std::string>& folders,
                                            const char* chosen);

// Why a library doesn't fit this program; "" when it does.
std::string unlike_builds(const CudaBuild& program, const CudaLibraryEntry& library);

// What of CUDA this process has, as part of a sentence: "GPUs that this process sees: 2", or what load_cuda_library()
// would say.
std::string describe_cuda();

// Loads the library once a process. Throws UserError, "--device cuda: ...", one sentence that says what was found:
// no backend in this build, no driver, one that is too old, no GPU, no library, one that doesn't fit. Any thread.
AcceleratorLibrary& load_cuda_library();

}  // namespace dtorch
