// What tests do otherwise where the job's devices are fake accelerators (DTORCH_DEVICE=fake, docs/gpu.md).
#pragma once
#include <cstdlib>
#include <string_view>

namespace dtorch::test {

inline bool on_fake_devices() {
  const char* const device = std::getenv("DTORCH_DEVICE");
  return device != nullptr && std::string_view(device).starts_with("fake");
}

}  // namespace dtorch::test
