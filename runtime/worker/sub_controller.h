// Sub-Controller: drives the devices of one node. Receives pieces, lowers every operator once per (spec, local device),
// pushes kernels to KernelStreams and transfers to the comm thread, sends acknowledgements, errors and read data back.
#pragma once
#include <memory>

#include "runtime/comm/comm_thread.h"
#include "runtime/comm/endpoint.h"
#include "runtime/worker/device_backend.h"

namespace dtorch {

class SubController {
 public:
  // Neither is owned; both outlive this object. num_slots: devices of this node are known only from the Config message.
  // backend: of this node's devices; null: the CPU's.
  SubController(int32_t node, ControlEndpoint& control, CommThread& comm,
                std::unique_ptr<DeviceBackend> backend = nullptr);
  ~SubController();
  // Says Hello, then serves until Shutdown; blocks. Returns the job's exit code. A damaged message or a broken
  // invariant is reported to the controller as an ErrorReport of the node and ends the service with code 1.
  int run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
