// Memory of every device, as the nodes last reported it.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/client/link.h"
#include "runtime/client/template_stats.h"

namespace dtorch {

// What Client::stats() returns. By device number; what a node acknowledged last, so that after Client::synchronize()
// everything recorded before it is in. Bytes are those of storages (a view costs nothing), charged to the device whose
// stream made or received them; a value that lies on two devices of one process as one storage counts once.
struct ClientStats : RuntimeStats, TemplateStats {
  std::vector<int64_t> bytes_in_use_per_device, peak_bytes_per_device;  // peak: since the start or the last reset
};

// A Runtime that counts memory device by device is one of these too. Thread-safe.
class DeviceMemorySource {
 public:
  virtual ~DeviceMemorySource() = default;
  virtual void add_device_memory(ClientStats& stats) = 0;
  // Every device's peak becomes what it has in use. Work that is under way may count for either side.
  virtual void reset_peak_bytes() = 0;
};

}  // namespace dtorch
