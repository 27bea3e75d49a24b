// SimulatedNodes: plays all nodes of a job whose devices run nothing ("null" devices), on one thread: so that one
// machine stands for hundreds of nodes. The controller and its messages are the real ones: every piece is decoded and
// verified, acknowledged by every node, and its memory counted (simulated_memory.h). Reads give zeros.
#pragma once
#include <chrono>
#include <memory>

#include "runtime/comm/endpoint.h"

namespace dtorch {

class SimulatedNodes {
 public:
  explicit SimulatedNodes(int32_t num_nodes);
  // Ends the thread.
  ~SimulatedNodes();
  // The controller's end; owned by this.
  ControlEndpoint& control();
  int32_t num_nodes() const;
  // Starts the thread; every node says Hello.
  void start();
  // False when the nodes weren't all told to end in time.
  bool wait_ended(std::chrono::nanoseconds grace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
