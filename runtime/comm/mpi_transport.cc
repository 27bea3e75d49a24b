#include "runtime/comm/mpi_transport.h"

#include <algorithm>
#include <string>

#include "runtime/comm/mpi_error.h"
#include "runtime/comm/mpi_requests.h"

namespace dtorch {

MpiTransport::MpiTransport(MPI_Comm comm, size_t chunk_bytes) : comm_(comm), chunk_bytes_(chunk_bytes) {
  DTORCH_CHECK(chunk_bytes >= 1 && chunk_bytes <= size_t{1} << 30, "chunk_bytes is " + std::to_string(chunk_bytes));
  int rank = 0;
  int num_ranks = 0;
  DTORCH_MPI(MPI_Comm_rank(comm_, &rank));
  DTORCH_MPI(MPI_Comm_size(comm_, &num_ranks));
  node_ = rank - 1;
  num_nodes_ = num_ranks - 1;
}

MpiTransport::~MpiTransport() {
  for (Entry& entry : entries_) {
    if (!entry.in_use) continue;
    for (Chunk& chunk : entry.chunks) {
      if (entry.is_receive)
        withdraw_request(chunk.request);
      else
        abandon_request(chunk.request);
    }
  }
}

Transport::Request MpiTransport::allocate(int32_t peer, uint32_t tag, bool is_receive, size_t size) {
  DTORCH_CHECK(peer >= 0 && peer < num_nodes_ && peer != node_, "node " + std::to_string(peer));
  DTORCH_CHECK(tag < kMaxTag, "tag " + std::to_string(tag));
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Entry& entry = entries_[index];
  entry.in_use = true;
  entry.is_receive = is_receive;
  entry.peer = peer;
  entry.tag = tag;
  entry.num_done = 0;
  entry.chunks.clear();
  // An empty message is one message.
  size_t at = 0;
  do {
    entry.chunks.push_back({MPI_REQUEST_NULL, static_cast<int>(std::min(chunk_bytes_, size - at))});
    at += chunk_bytes_;
  } while (at < size);
  return uint64_t{entry.generation} << 32 | index;
}

MpiTransport::Entry& MpiTransport::entry_of(Request request) {
  const size_t index = request & 0xffffffffU;
  DTORCH_CHECK(index < entries_.size() && entries_[index].in_use && entries_[index].generation == request >> 32,
               "request " + std::to_string(request) + " isn't under way");
  return entries_[index];
}

Transport::Request MpiTransport::send(int32_t to, uint32_t tag, std::span<const std::byte> buffer) {
  const Request request = allocate(to, tag, false, buffer.size());
  const std::byte* at = buffer.data();
  for (Chunk& chunk : entry_of(request).chunks) {
    DTORCH_MPI(MPI_Isend(at, chunk.count, MPI_BYTE, to + 1, static_cast<int>(tag), comm_, &chunk.request));
    at += chunk.count;
  }
  messages_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(static_cast<int64_t>(buffer.size()), std::memory_order_relaxed);
  return request;
}

Transport::Request MpiTransport::receive(int32_t from, uint32_t tag, std::span<std::byte> buffer) {
  const Request request = allocate(from, tag, true, buffer.size());
  std::byte* at = buffer.data();
  for (Chunk& chunk : entry_of(request).chunks) {
    DTORCH_MPI(MPI_Irecv(at, chunk.count, MPI_BYTE, from + 1, static_cast<int>(tag), comm_, &chunk.request));
    at += chunk.count;
  }
  return request;
}

bool MpiTransport::test(Request request) {
  Entry& entry = entry_of(request);
  while (entry.num_done < entry.chunks.size()) {
    Chunk& chunk = entry.chunks[entry.num_done];
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&chunk.request, &done, &status);
    if (code == MPI_SUCCESS && !done) return false;
    int count = chunk.count;
    std::string problem;
    if (code != MPI_SUCCESS)
      problem = mpi_error_text(code);
    else if (entry.is_receive)
      DTORCH_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    if (problem.empty() && count != chunk.count) {
      problem = std::to_string(count) + " bytes instead of " + std::to_string(chunk.count);
    }
    if (!problem.empty()) {
      // The entry isn't used again: other chunks of it may be under way.
      throw RuntimeFault("message " + std::to_string(entry.tag) + (entry.is_receive ? " from node " : " to node ") +
                         std::to_string(entry.peer) + ": " + problem);
    }
    ++entry.num_done;
  }
  ++completed_;
  entry.in_use = false;
  ++entry.generation;
  free_.push_back(static_cast<uint32_t>(request & 0xffffffffU));
  return true;
}

}  // namespace dtorch
