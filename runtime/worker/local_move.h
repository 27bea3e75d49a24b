// A redistribution in which every device makes its part from its own part alone: a slice (a view), or zeros where
// another position of a Partial axis holds the value.
#pragma once
#include <vector>

#include "mesh/redistribute_plan.h"
#include "runtime/accelerator/accelerator.h"
#include "runtime/worker/device_backend.h"

namespace dtorch {

class LocalMove {
 public:
  LocalMove() = default;
  // Throws InternalError when the plan isn't local on this device.
  LocalMove(const RedistributePlan& plan, int64_t device, const DeviceBinding& binding);
  NativeTensor run(const NativeTensor& part, DeviceBackend& backend) const;
  // On a device that runs behind the host. The result is charged to `memory`.
  NativeTensor run(const NativeTensor& part, DeviceStream& stream, MemoryCounter* memory) const;

 private:
  struct Step {
    Box from, to;             // global coordinates
    std::vector<Box> copies;  // global coordinates; the rest of `to` is zero
  };
  template <class MakeZeros, class Copy>
  NativeTensor run_steps(const NativeTensor& part, MakeZeros make_zeros, Copy copy) const;
  std::vector<Step> steps_;
};

// `box` in coordinates of the part that covers `part_box` (both global).
Box local_box(const Box& box, const Box& part_box);

}  // namespace dtorch
