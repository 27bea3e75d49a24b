// What the NVIDIA driver of this machine says of itself, and whether `--device cuda` can work with it. Nothing here
// needs CUDA's headers, or a GPU.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace dtorch {

struct DriverFacts {
  std::string load_error;              // of libcuda.so.1; "" when it is there
  int init_code = 0;                   // cuInit's; 0: fine
  std::string init_name;               // "CUDA_ERROR_NO_DEVICE"
  int version = 0;                     // the newest CUDA that it serves: 13000; 0: not known
  int num_devices = 0;                 // that this process sees
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
};
// Loads the driver and starts it in this process.
DriverFacts look_at_driver();

// "13.0" of 13000.
std::string cuda_version_text(int version);

// Why CUDA of version `needed` can't be used here, as one sentence with what was found and what to do; "" when it can.
std::string driver_problem(const DriverFacts& facts, int needed);

}  // namespace dtorch
