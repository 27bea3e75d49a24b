// Control channel and data plane inside one process: the Main-Controller and N nodes as threads. The same messages and
// the same transfers as over MPI. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>

#include "runtime/comm/endpoint.h"
#include "runtime/comm/transport.h"

namespace dtorch {

class InProcessFabric {
 public:
  // Throws InternalError when num_nodes < 1.
  explicit InProcessFabric(int32_t num_nodes);
  ~InProcessFabric();
  InProcessFabric(const InProcessFabric&) = delete;
  InProcessFabric& operator=(const InProcessFabric&) = delete;

  int32_t num_nodes() const;
  // kController or a node. Owned by the fabric.
  ControlEndpoint& control(int32_t address);
  // As if the node's process were gone: nothing that it sends from now on arrives, nor what others send it, and what it
  // had under way never completes. Any thread; for tests.
  void cut_off(int32_t node);
  // The transport of a node; one a node at a time. It keeps what it shares with the others alive, so it may outlive the
  // fabric. Sends are a rendezvous: the receiver copies straight out of the sender's buffer, once. Destroying a
  // transport withdraws its requests; what others wait for from it never completes.
  std::unique_ptr<Transport> make_transport(int32_t node);

 private:
  class Endpoint;
  class Node;
  class NodeTransport;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dtorch
