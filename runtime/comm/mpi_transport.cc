#include "runtime/comm/mpi_transport.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "runtime/comm/mpi_error.h"
#include "runtime/comm/mpi_requests.h"

namespace dtorch {
namespace {

constexpr auto kTidyEvery = std::chrono::milliseconds(10);
// What other nodes sent before they heard of the new epoch comes within this time; after it, MPI keeps it.
constexpr auto kDrainFor = std::chrono::seconds(30);
// Epochs whose messages are drained; of a circle of communicators this leaves some for nodes that are ahead.
constexpr uint32_t kDrainedEpochs = 3;

}  // namespace

MpiTransport::MpiTransport(std::vector<MPI_Comm> comms, size_t chunk_bytes, OnFailure on_failure)
    : comms_(std::move(comms)), on_failure_(std::move(on_failure)), chunk_bytes_(chunk_bytes) {
  DTORCH_CHECK(!comms_.empty(), "no communicator");
  comm_ = comms_[epoch_ % comms_.size()];
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
    if (entry.in_use) withdraw(entry);
  }
}

void MpiTransport::withdraw(Entry& entry) {
  for (Chunk& chunk : entry.chunks) {
    if (entry.is_receive)
      withdraw_request(chunk.request);
    else
      abandon_request(chunk.request);
  }
}

void MpiTransport::release(Entry& entry) {
  entry.in_use = false;
  entry.owner.reset();
  ++entry.generation;
  free_.push_back(static_cast<uint32_t>(&entry - entries_.data()));
}

void MpiTransport::begin_epoch(uint32_t epoch) {
  for (Entry& entry : entries_) {
    if (!entry.in_use) continue;
    if (entry.owner == nullptr) {
      withdraw(entry);
    } else {
      for (Chunk& chunk : entry.chunks) {
        if (entry.is_receive)
          abandoned_.add_receive(chunk.request, entry.owner);
        else
          abandoned_.add(chunk.request, entry.owner);
      }
    }
    release(entry);
  }
  epoch_ = epoch;
  comm_ = comms_[epoch_ % comms_.size()];
  next_tidy_ = std::chrono::steady_clock::now();
  drained_until_ = next_tidy_ + kDrainFor;
}

void MpiTransport::tidy() {
  if (drained_until_ == std::chrono::steady_clock::time_point{}) return;  // no epoch has ended
  const auto now = std::chrono::steady_clock::now();
  if (now < next_tidy_) return;
  next_tidy_ = now + kTidyEvery;
  abandoned_.test();
  if (now > drained_until_) return;
  for (uint32_t back = 1; back <= kDrainedEpochs && back < epoch_ && back < comms_.size(); ++back) drain(epoch_ - back);
}

void MpiTransport::drain(uint32_t epoch) {
  MPI_Comm comm = comms_[epoch % comms_.size()];
  while (true) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &there, &status) != MPI_SUCCESS || !there) return;
    // The circle has come round for a node that is ahead.
    if (static_cast<uint32_t>(status.MPI_TAG) >> kEpochShift << kEpochShift != epoch_bits(epoch)) return;
    int count = 0;
    DTORCH_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    const std::shared_ptr<std::byte[]> dropped(new (std::nothrow) std::byte[static_cast<size_t>(count)]);
    if (dropped == nullptr) return;  // it stays where it is
    MPI_Request request = MPI_REQUEST_NULL;
    DTORCH_MPI(MPI_Irecv(dropped.get(), count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, &request));
    abandoned_.add(request, dropped);
  }
}

Transport::Request MpiTransport::allocate(int32_t peer, uint32_t tag, bool is_receive, size_t size, Owner owner) {
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
  entry.is_dead = false;
  entry.owner = std::move(owner);
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

Transport::Request MpiTransport::send(int32_t to, uint32_t tag, std::span<const std::byte> buffer, Owner owner) {
  const Request request = allocate(to, tag, false, buffer.size(), std::move(owner));
  const std::byte* at = buffer.data();
  for (Chunk& chunk : entry_of(request).chunks) {
    const int code = MPI_Isend(at, chunk.count, MPI_BYTE, to + 1, static_cast<int>(tag), comm_, &chunk.request);
    if (code != MPI_SUCCESS && on_failure_) {
      give_up(entry_of(request), code);
      break;
    }
    check_mpi(code, "MPI_Isend(");
    at += chunk.count;
  }
  messages_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(static_cast<int64_t>(buffer.size()), std::memory_order_relaxed);
  return request;
}

Transport::Request MpiTransport::receive(int32_t from, uint32_t tag, std::span<std::byte> buffer, Owner owner) {
  const Request request = allocate(from, tag, true, buffer.size(), std::move(owner));
  std::byte* at = buffer.data();
  for (Chunk& chunk : entry_of(request).chunks) {
    const int code = MPI_Irecv(at, chunk.count, MPI_BYTE, from + 1, static_cast<int>(tag), comm_, &chunk.request);
    if (code != MPI_SUCCESS && on_failure_) {
      give_up(entry_of(request), code);
      break;
    }
    check_mpi(code, "MPI_Irecv(");
    at += chunk.count;
  }
  return request;
}

void MpiTransport::give_up(Entry& entry, int code) {
  entry.is_dead = true;
  on_failure_(entry.peer, mpi_error_text(code));
}

bool MpiTransport::test(Request request) {
  Entry& entry = entry_of(request);
  if (entry.is_dead) return false;
  while (entry.num_done < entry.chunks.size()) {
    Chunk& chunk = entry.chunks[entry.num_done];
    int done = 0;
    MPI_Status status;
    const int code = MPI_Test(&chunk.request, &done, &status);
    if (code == MPI_SUCCESS && !done) return false;
    if (code != MPI_SUCCESS && on_failure_) {
      give_up(entry, code);
      return false;
    }
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
  release(entry);
  return true;
}

}  // namespace dtorch
