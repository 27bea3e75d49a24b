// What follows from a DeviceBinding. Pure; any thread.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "mesh/layout.h"

namespace dtorch {

// A node's devices, in the order of their slots.
inline std::vector<int64_t> devices_of(const DeviceBinding& binding, int32_t node) {
  std::vector<int64_t> devices;
  for (int64_t device = 0; device < binding.num_devices(); ++device) {
    if (binding.node_of(device) == node) devices.push_back(device);
  }
  std::ranges::sort(devices, {}, [&](int64_t device) { return binding.slot_of(device); });
  return devices;
}

}  // namespace dtorch
