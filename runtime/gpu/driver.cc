#include "runtime/gpu/driver.h"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/gpu/shared_library.h"

namespace dtorch {
namespace {

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

std::string quoted(const std::optional<std::string>& visible) { return visible ? "'" + *visible + "'" : "unset"; }

}  // namespace

DriverFacts look_at_driver() {
  DriverFacts facts;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible = visible;
  const SharedLibrary driver({"libcuda.so.1"});
  facts.load_error = driver.error();
  const auto init = driver.function<int (*)(unsigned)>("cuInit");
  const auto get_version = driver.function<int (*)(int*)>("cuDriverGetVersion");
  const auto get_count = driver.function<int (*)(int*)>("cuDeviceGetCount");
  const auto get_name = driver.function<int (*)(int, const char**)>("cuGetErrorName");
  if (!driver) return facts;
  if (init == nullptr || get_version == nullptr || get_count == nullptr) {
    facts.load_error = "it isn't a CUDA driver: cuInit is missing";
    return facts;
  }
  if (get_version(&facts.version) != 0) facts.version = 0;
  facts.init_code = init(0);
  const char* name = nullptr;
  if (facts.init_code != 0 && get_name != nullptr && get_name(facts.init_code, &name) == 0 && name != nullptr)
    facts.init_name = name;
  if (facts.init_code == 0 && get_count(&facts.num_devices) != 0) facts.num_devices = 0;
  return facts;
}

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string driver_problem(const DriverFacts& facts, int needed) {
  if (!facts.load_error.empty()) {
    return fmt::format(
        "no NVIDIA driver is on this machine ({}); run on a node with GPUs, or in a container that is given them",
        facts.load_error);
  }
  // Versions of CUDA with one major number serve each other.
  if (facts.version > 0 && facts.version / 1000 < needed / 1000) {
    return fmt::format(
        "the NVIDIA driver serves CUDA {} and older, this DTorch and its LibTorch are built for CUDA {}; a newer "
        "driver is "
        "needed, or a build with a LibTorch for CUDA {}",
        cuda_version_text(facts.version), cuda_version_text(needed), facts.version / 1000);
  }
  if (facts.init_code == kNoDevice || (facts.init_code == 0 && facts.num_devices == 0)) {
    return fmt::format("the NVIDIA driver (CUDA {}) sees no GPU; CUDA_VISIBLE_DEVICES is {}",
                       cuda_version_text(facts.version), quoted(facts.visible));
  }
  if (facts.init_code != 0) {
    return fmt::format("the NVIDIA driver (CUDA {}) doesn't start: cuInit gives {}{}; CUDA_VISIBLE_DEVICES is {}",
                       cuda_version_text(facts.version), facts.init_code,
                       facts.init_name.empty() ? "" : " (" + facts.init_name + ")", quoted(facts.visible));
  }
  return "";
}

}  // namespace dtorch
