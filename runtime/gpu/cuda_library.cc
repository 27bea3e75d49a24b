#include "runtime/gpu/cuda_library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/gpu/driver.h"
#include "runtime/gpu/shared_library.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "libdtorch_cuda.so";
constexpr const char* kPathVariable = "DTORCH_CUDA_LIBRARY";
constexpr const char* kNoBackend =
    "this build has no CUDA backend; configure it where the CUDA toolkit is, or with `make deps_cuda` before";

[[noreturn]] void refuse(const std::string& what) { throw UserError("--device cuda: " + what); }

std::string program_path() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none);
}

std::string joined(const std::vector<std::string>& paths) { return fmt::format("{}", fmt::join(paths, ", ")); }

const CudaLibraryEntry& open_library(const CudaBuild& build) {
  const std::vector<std::string> paths = cuda_library_paths(program_path(), build.folders, std::getenv(kPathVariable));
  std::error_code none;
  const std::string* found = nullptr;
  for (const std::string& path : paths) {
    if (found == nullptr && fs::exists(path, none)) found = &path;
  }
  if (found == nullptr)
    refuse(fmt::format("{} isn't found in any of {}; set {}", kFileName, joined(paths), kPathVariable));
  const SharedLibrary library({*found});
  if (!library)
    refuse(
        fmt::format("{} can't be loaded: {}; LibTorch's CUDA libraries have to be found beside it (docs/gpu_nodes.md)",
                    *found, library.error()));
  const auto entry = library.function<const CudaLibraryEntry* (*)()>("dtorch_cuda_entry");
  if (entry == nullptr) refuse(*found + " isn't DTorch's: dtorch_cuda_entry is missing");
  const std::string unlike = unlike_builds(build, *entry());
  if (!unlike.empty()) refuse(*found + " " + unlike);
  return *entry();
}

}  // namespace

CudaBuild cuda_build() {
  CudaBuild build{.cuda_version = DTORCH_CUDA_VERSION,
                  .dtorch_version = DTORCH_VERSION,
                  .torch_version = DTORCH_TORCH_VERSION,
                  .folders = {}};
  std::istringstream folders(DTORCH_CUDA_FOLDERS);
  for (std::string folder; std::getline(folders, folder, ':');) build.folders.push_back(folder);
  return build;
}

std::vector<std::string> cuda_library_paths(const std::string& program, const std::vector<std::string>& folders,
                                            const char* chosen) {
  if (chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> paths;
  if (!program.empty()) {
    const fs::path folder = fs::path(program).parent_path();
    paths.push_back(folder / kFileName);
    paths.push_back(folder.parent_path() / "lib" / kFileName);
  }
  for (const std::string& folder : folders) {
    const std::string path = fs::path(folder) / kFileName;
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  }
  return paths;
}

std::string unlike_builds(const CudaBuild& program, const CudaLibraryEntry& library) {
  if (program.dtorch_version != library.dtorch_version)
    return fmt::format("is of DTorch {}, this program of {}", library.dtorch_version, program.dtorch_version);
  if (program.torch_version != library.torch_version) {
    return fmt::format("was built with LibTorch {}, this program with {}; build both with one", library.torch_version,
                       program.torch_version);
  }
  return "";
}

std::string describe_cuda() {
  const CudaBuild build = cuda_build();
  if (build.cuda_version == 0) return kNoBackend;
  const DriverFacts facts = look_at_driver();
  const std::string problem = driver_problem(facts, build.cuda_version);
  return problem.empty() ? fmt::format("GPUs that this process sees: {}", facts.num_devices) : problem;
}

AcceleratorLibrary& load_cuda_library() {
  static std::mutex mutex;
  static AcceleratorLibrary* loaded = nullptr;  // under mutex
  std::lock_guard lock(mutex);
  if (loaded != nullptr) return *loaded;
  const CudaBuild build = cuda_build();
  if (build.cuda_version == 0) refuse(kNoBackend);
  const std::string problem = driver_problem(look_at_driver(), build.cuda_version);
  if (!problem.empty()) refuse(problem);
  loaded = &open_library(build).accelerators();
  return *loaded;
}

}  // namespace dtorch
