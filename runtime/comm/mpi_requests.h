// What happens to MPI requests that nobody will complete, when a job ends by force. Inside runtime/comm only.
#pragma once
#include <mpi.h>

namespace dtorch {

// Takes a receive back and forgets it. Its buffer may be freed afterwards unless a message is arriving in it at this
// moment, which is waited for, for at most a tenth of a second.
void withdraw_request(MPI_Request& request);
// Forgets a send. Where the peer may still take it, the job must end by MPI_Abort.
void abandon_request(MPI_Request& request);

}  // namespace dtorch
