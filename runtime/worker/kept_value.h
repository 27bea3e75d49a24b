// What a snapshot keeps of one device (runtime/graph/snapshot.h): its part of every value at the cut.
#pragma once
#include <vector>

#include "runtime/worker/blob.h"

namespace dtorch {

struct KeptValue {
  GraphId graph = 0;
  OperandId slot = 0;
  // One of them. What is pending is settled by somebody else, and stays in the Arrival.
  NativeTensor value;
  PoisonPtr poison;
  IntrusivePtr<Arrival> pending;
};
// Ascending by Graph and slot.
using KeptPart = std::vector<KeptValue>;

}  // namespace dtorch
