// A redistribution by collectives (runtime/accelerator/device_plan.h), as one device enqueues it.
#pragma once
#include <functional>
#include <vector>

#include "runtime/accelerator/accelerator.h"
#include "runtime/accelerator/device_plan.h"

namespace dtorch {

struct CollectiveMove {
  const DevicePlan& plan;
  std::function<Communicator&(const std::vector<int64_t>& group)> communicator_of;
  CommunicatorFactory& factory;
  DeviceStream& stream;  // for communication
  MemoryCounter* memory = nullptr;

  // Enqueues all steps. value: this device's part, which is there on the stream; empty where it has none. Returns the
  // part that it gets, if it gets one.
  NativeTensor run(NativeTensor value) const;
};

}  // namespace dtorch
