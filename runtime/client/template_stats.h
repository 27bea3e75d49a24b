// What templates do for a job: how much of what a program records is replayed.
#pragma once
#include <cstdint>

#include "runtime/graph/device_graph_stats.h"

namespace dtorch {

struct TemplateStats {
  int64_t template_operators = 0;  // sent as part of a replay, of RuntimeStats::operators
  int64_t template_replays = 0;    // messages that replayed some
  int64_t templates_defined = 0;
  int64_t template_breaks = 0;  // instances that didn't go on as their template
  DeviceGraphStats device_graphs;
};

// A Runtime that replays templates is one of these too. Thread-safe.
class TemplateStatsSource {
 public:
  virtual ~TemplateStatsSource() = default;
  virtual TemplateStats template_stats() = 0;
};

}  // namespace dtorch
