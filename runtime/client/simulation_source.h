// Whether the devices of a job compute anything.
#pragma once
#include "runtime/client/link.h"

namespace dtorch {

// A Runtime whose devices may be pretended (--device null) is one of these too. Thread-safe.
class SimulationSource {
 public:
  virtual ~SimulationSource() = default;
  virtual bool is_simulated() const = 0;
};

// Values are never computed and reads give 0: what would keep or judge values has to refuse.
inline bool is_simulated(Runtime& runtime) {
  const auto* source = dynamic_cast<const SimulationSource*>(&runtime);
  return source != nullptr && source->is_simulated();
}

}  // namespace dtorch
