// What happens to MPI requests that nobody will complete: when a job ends by force, and when a node was lost. Inside
// runtime/comm only.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace dtorch {

// Takes a receive back and forgets it. Its buffer may be freed afterwards unless a message is arriving in it at this
// moment, which is waited for, for at most a tenth of a second.
void withdraw_request(MPI_Request& request);
// Forgets a send. Where the peer may still take it, the job must end by MPI_Abort.
void abandon_request(MPI_Request& request);

// Requests that nobody waits for any more, in a job that goes on. MPI may use their memory until they have ended:
// those with a lost peer never do, so that what was under way to it, and no more, is held until the job ends. Comm
// thread only.
class AbandonedRequests {
 public:
  // Takes the request over; it is null afterwards.
  void add(MPI_Request& request, std::shared_ptr<const void> owner);
  // The same, cancelled: unless a message is arriving in it, it ends.
  void add_receive(MPI_Request& request, std::shared_ptr<const void> owner);
  // Lets go of what has ended. Never blocks, and costs one call of MPI however many there are: on a machine with too
  // few cores each may give the core away. An MPI error ends a request.
  void test();
  size_t size() const { return requests_.size(); }

 private:
  std::vector<MPI_Request> requests_;
  std::vector<std::shared_ptr<const void>> owners_;  // of the requests, in their order
  std::vector<int> ended_;                           // keeps its memory
};

}  // namespace dtorch
