// What recovery has done and what it holds, for statistics.
#pragma once
#include <cstdint>

namespace dtorch {

struct RecoveryStats {
  uint32_t epoch = 1;
  int64_t recoveries = 0;
  int64_t snapshots = 0;        // committed
  int64_t log_bytes = 0;        // on rank 0
  int64_t snapshot_bytes = 0;   // of the devices' values that the committed one keeps, all nodes together
  int64_t copy_bytes = 0;       // of boxes that another node keeps
  int64_t replayed_pieces = 0;  // in all recoveries
  double last_recovery_s = 0;   // until everything was sent again
};

}  // namespace dtorch
