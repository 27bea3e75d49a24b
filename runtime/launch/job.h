// What carries a job: how the Main-Controller reaches its nodes, and how they end. Three forms: nodes as threads of
// this process (embedded), MPI ranks, or simulated nodes whose devices run nothing. Used by run() on rank 0, from one
// thread.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "runtime/comm/endpoint.h"
#include "runtime/comm/mpi_session.h"

namespace dtorch {

class Job {
 public:
  virtual ~Job() = default;
  virtual ControlEndpoint& control() = 0;
  virtual int32_t num_nodes() const = 0;
  struct Watchers {
    // The job can't go on: the channel to the nodes has failed.
    std::function<void(std::exception_ptr)> on_failure;
    // A node is gone, and why.
    std::function<void(int32_t node, const std::string& cause)> on_node_lost;
  };
  // Starts the threads. The watchers are called from any thread.
  virtual void start(Watchers watchers) = 0;
  // Ends the threads and what they need, after the nodes were told to end. `clean`: all of them have said goodbye.
  // Bounded: what doesn't end in time is left behind or ended by force. True when everything ended in order.
  virtual bool finish(bool clean, int exit_code) = 0;
};

// `num_nodes` Sub-Controllers in this process. device: as --device.
std::unique_ptr<Job> make_embedded_job(int32_t num_nodes, const std::string& device);
// Nodes that only count what they would do; see SimulatedNodes.
std::unique_ptr<Job> make_simulated_job(int32_t num_nodes);
// Rank 0 of several.
std::unique_ptr<Job> make_mpi_job(std::unique_ptr<MpiSession> session);

// A rank above 0: serves as Sub-Controller until the job ends. Returns the job's exit code.
int run_node_rank(std::unique_ptr<MpiSession> session, const std::string& device);

}  // namespace dtorch
