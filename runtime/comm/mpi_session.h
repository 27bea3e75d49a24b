// MPI's life in one process: start-up, the two communicators, the end. Includes no header of MPI. The thread that calls
// start() also calls finish(); between the two only the comm thread calls MPI (D7).
#pragma once
#include <cstdint>
#include <memory>

#include "runtime/comm/comm_thread.h"
#include "runtime/comm/endpoint.h"
#include "runtime/comm/transport.h"

namespace dtorch {

// True under mpirun or srun with more than one rank. Reads the environment only.
bool launched_with_mpi();

class MpiSession {
 public:
  // Initialises MPI. Rank 0 is the controller, ranks 1 .. N-1 are nodes 0 .. N-2. Throws RuntimeFault, in one sentence,
  // when the world has one rank (a launcher that doesn't speak this MPI's language) or MPI lacks what is needed. Once a
  // process.
  static std::unique_ptr<MpiSession> start(int* argc, char*** argv);
  // Ends by force when finish() wasn't called.
  ~MpiSession();

  int rank() const;
  int num_ranks() const;
  int32_t node() const { return rank() - 1; }  // kController on rank 0
  int32_t num_nodes() const { return num_ranks() - 1; }

  ControlEndpoint& control();
  // To be driven by the comm thread.
  ProgressSource& control_progress();
  // Null on rank 0, which has no part in the data plane.
  std::unique_ptr<Transport> make_transport();

  // Ends MPI; the comm thread has ended before and its transport is gone. clean: finalises, for which all ranks must
  // come here within `limit_s` of each other; else, or when the time is over, the job is ended by MPI_Abort or, should
  // that hang too, this process by _exit, with `exit_code` (78, peer lost, where it was 0). Returns only after a clean
  // end.
  void finish(bool clean, int exit_code, double limit_s = 5);

 private:
  struct State;
  explicit MpiSession(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
