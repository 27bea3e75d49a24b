#include "runtime/comm/mpi_requests.h"

#include <chrono>
#include <thread>
#include <utility>

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

void AbandonedRequests::add(MPI_Request& request, std::shared_ptr<const void> owner) {
  if (request == MPI_REQUEST_NULL) return;
  requests_.push_back(std::exchange(request, MPI_REQUEST_NULL));
  owners_.push_back(std::move(owner));
}

void AbandonedRequests::add_receive(MPI_Request& request, std::shared_ptr<const void> owner) {
  if (request == MPI_REQUEST_NULL) return;
  // One that can't be cancelled ends by itself, or never.
  static_cast<void>(MPI_Cancel(&request));
  add(request, std::move(owner));
}

void AbandonedRequests::test() {
  if (requests_.empty()) return;
  const auto count = static_cast<int>(requests_.size());
  ended_.resize(requests_.size());
  int num_ended = 0;
  // Those that failed are null afterwards, too, and nobody is left to be told.
  static_cast<void>(MPI_Testsome(count, requests_.data(), &num_ended, ended_.data(), MPI_STATUSES_IGNORE));
  size_t left = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[left] = requests_[i];
    owners_[left] = std::move(owners_[i]);
    ++left;
  }
  requests_.resize(left);
  owners_.resize(left);
}

}  // namespace dtorch
