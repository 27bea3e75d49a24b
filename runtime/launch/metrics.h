// What a job says to Prometheus.
#pragma once
#include <string>

#include "runtime/controller/main_controller.h"

namespace dtorch {

// Counters and gauges of the job in Prometheus' text format, as of the nodes' last acknowledgements. Waits for nobody.
// Any thread.
std::string metrics_text(MainController& controller);

}  // namespace dtorch
