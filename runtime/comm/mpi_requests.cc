#include "runtime/comm/mpi_requests.h"

#include <chrono>
#include <thread>

namespace dtorch {

void withdraw_request(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return;
  // A failure here can't be told to anybody any more: the caller is a destructor, and the job is at its end.
  int done = 0;
  if (MPI_Cancel(&request) == MPI_SUCCESS) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    do {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done) break;
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < deadline);
  }
  if (!done) abandon_request(request);
}

void abandon_request(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) return;
  int done = 0;
  if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) return;
  if (request != MPI_REQUEST_NULL && MPI_Request_free(&request) != MPI_SUCCESS) request = MPI_REQUEST_NULL;
}

}  // namespace dtorch
