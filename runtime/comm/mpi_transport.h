// The data plane over MPI point-to-point: Isend and Irecv with MPI_Test, long messages in chunks.
//
// Epochs: each uses the next of the communicators, in a circle, and tags hold its number, so that a message of one is
// never matched in another. Messages of the epochs before that other nodes had sent here are taken and dropped, for as
// long as they may come: then their senders' memory is free, and MPI's.
#pragma once
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/mpi_requests.h"
#include "runtime/comm/transport.h"

namespace dtorch {

class MpiTransport final : public Transport {
 public:
  // Node n is rank n + 1 of each communicator; they aren't owned. Both sides must have the same chunk_bytes. With
  // `on_failure` a request that MPI fails isn't an error but never completes: it is told of the peer, which is gone for
  // this node, and begin_epoch will follow. Called on the comm thread.
  using OnFailure = std::function<void(int32_t node, const std::string& what)>;
  explicit MpiTransport(std::vector<MPI_Comm> comms, size_t chunk_bytes = size_t{1} << 30,
                        OnFailure on_failure = nullptr);
  // Withdraws what is outstanding, see mpi_requests.h.
  ~MpiTransport() override;

  int32_t node() const override { return node_; }
  Request send(int32_t to, uint32_t tag, std::span<const std::byte> buffer, Owner owner = nullptr) override;
  Request receive(int32_t from, uint32_t tag, std::span<std::byte> buffer, Owner owner = nullptr) override;
  bool test(Request request) override;
  void begin_epoch(uint32_t epoch) override;
  void tidy() override;
  bool needs_polling() const override { return true; }
  uint64_t completed() const override { return completed_; }
  int64_t messages_sent() const override { return messages_.load(std::memory_order_relaxed); }
  int64_t bytes_sent() const override { return bytes_.load(std::memory_order_relaxed); }
  // Withdrawn requests whose memory MPI may still use. Comm thread only.
  size_t num_abandoned() const { return abandoned_.size(); }

 private:
  // The chunks of a message share the tag: MPI matches them in the order of posting, which is the same on both sides.
  struct Chunk {
    MPI_Request request = MPI_REQUEST_NULL;
    int count = 0;
  };
  struct Entry {
    std::vector<Chunk> chunks;  // keeps its memory when the entry is used again
    size_t num_done = 0;
    uint32_t generation = 0;
    bool in_use = false;
    bool is_receive = false;
    bool is_dead = false;  // never completes
    int32_t peer = 0;
    uint32_t tag = 0;
    Owner owner;
  };
  Request allocate(int32_t peer, uint32_t tag, bool is_receive, size_t size, Owner owner);
  Entry& entry_of(Request request);
  void release(Entry& entry);
  void withdraw(Entry& entry);
  void drain(uint32_t epoch);
  // Of a request that will never complete.
  void give_up(Entry& entry, int code);

  std::vector<MPI_Comm> comms_;
  OnFailure on_failure_;
  uint32_t epoch_ = 1;
  MPI_Comm comm_;  // of the epoch
  size_t chunk_bytes_;
  int32_t node_ = 0, num_nodes_ = 0;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  AbandonedRequests abandoned_;
  std::chrono::steady_clock::time_point next_tidy_{}, drained_until_{};
  uint64_t completed_ = 0;
  std::atomic<int64_t> messages_{0}, bytes_{0};
};

}  // namespace dtorch
