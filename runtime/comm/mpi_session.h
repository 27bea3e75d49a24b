// MPI's life in one process: start-up, the communicators, the end. Includes no header of MPI. The thread that calls
// start() also calls finish(); between the two only the comm thread calls MPI (D7).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/comm/comm_thread.h"
#include "runtime/comm/endpoint.h"
#include "runtime/comm/transport.h"

namespace dtorch {

struct MpiOptions {
  // The job goes on when a node is lost: mpirun must have been told to let it (--enable-recovery).
  bool recover = false;
  double silence_s = 0;  // a node that is silent for so long is lost; 0: nobody watches
  // This process's own, of a node; all others are rank 0's.
  int32_t accelerators = 0;
};

class MpiSession {
 public:
  // Initialises MPI. Rank 0 is the controller, ranks 1 .. N-1 are nodes 0 .. N-2. Throws RuntimeFault, in one sentence,
  // when the world has one rank (a launcher that doesn't speak this MPI's language), or MPI or its launcher lacks what
  // is needed. `options` are rank 0's, on all. Once a process.
  static std::unique_ptr<MpiSession> start(int* argc, char*** argv, MpiOptions options = {});
  // Ends by force when finish() wasn't called.
  ~MpiSession();

  int rank() const;
  int num_ranks() const;
  int32_t node() const { return rank() - 1; }  // kController on rank 0
  int32_t num_nodes() const { return num_ranks() - 1; }
  int64_t num_accelerators() const;  // of all nodes

  ControlEndpoint& control();
  // To be driven by the comm thread.
  ProgressSource& control_progress();
  // The same, when the others are watched (liveness.h), else null.
  ProgressSource* liveness();
  // Before the comm thread runs; called on it, as Liveness's.
  void set_on_lost(std::function<void(int32_t address, const std::string& cause)> on_lost);
  // Null on rank 0, which has no part in the data plane.
  std::unique_ptr<Transport> make_transport();

  // Ends MPI; the comm thread has ended before and its transport is gone. clean: finalises, for which all ranks must
  // come here within `limit_s` of each other; else, or when the time is over, the job is ended by MPI_Abort or, should
  // that hang too, this process by _exit, with `exit_code` (78, peer lost, where it was 0). Returns only after a clean
  // end, and where the job may go on without this node, or has lost one: then MPI isn't finalised, which would wait for
  // that one, and nobody waits for anybody; this process is ended by _exit when it hasn't within `limit_s`. Rank 0 ends
  // lost nodes that may still be there by MPI_Abort, with `exit_code` itself.
  void finish(bool clean, int exit_code, double limit_s = 5);

 private:
  struct State;
  explicit MpiSession(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
