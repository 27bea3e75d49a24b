// What carries a job: how the Main-Controller reaches its nodes, and how they end. Two forms: nodes as threads of this
// process (embedded), or MPI ranks. Used by run() on rank 0, from one thread.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "runtime/comm/endpoint.h"
#include "runtime/comm/mpi_session.h"

namespace dtorch {

class Job {
 public:
  virtual ~Job() = default;
  virtual ControlEndpoint& control() = 0;
  virtual int32_t num_nodes() const = 0;
  // Starts the threads. `on_failure` is called, from any thread, when the job can't go on (the channel to the nodes has
  // failed).
  virtual void start(std::function<void(std::exception_ptr)> on_failure) = 0;
  // Ends the threads and what they need, after the nodes were told to end. `clean`: all of them have said goodbye.
  // Bounded: what doesn't end in time is left behind or ended by force. True when everything ended in order.
  virtual bool finish(bool clean, int exit_code) = 0;
};

// `num_nodes` Sub-Controllers in this process.
std::unique_ptr<Job> make_embedded_job(int32_t num_nodes);
// Rank 0 of several.
std::unique_ptr<Job> make_mpi_job(std::unique_ptr<MpiSession> session);

// A rank above 0: serves as Sub-Controller until the job ends. Returns the job's exit code.
int run_node_rank(std::unique_ptr<MpiSession> session);

}  // namespace dtorch
