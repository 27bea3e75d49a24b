// The data plane over MPI point-to-point: Isend and Irecv with MPI_Test, long messages in chunks.
#pragma once
#include <mpi.h>

#include <atomic>
#include <vector>

#include "runtime/comm/transport.h"

namespace dtorch {

class MpiTransport final : public Transport {
 public:
  // Node n is rank n + 1 of `comm`, which isn't owned. Both sides must have the same chunk_bytes.
  explicit MpiTransport(MPI_Comm comm, size_t chunk_bytes = size_t{1} << 30);
  // Withdraws what is outstanding, see mpi_requests.h.
  ~MpiTransport() override;

  int32_t node() const override { return node_; }
  Request send(int32_t to, uint32_t tag, std::span<const std::byte> buffer) override;
  Request receive(int32_t from, uint32_t tag, std::span<std::byte> buffer) override;
  bool test(Request request) override;
  bool needs_polling() const override { return true; }
  uint64_t completed() const override { return completed_; }
  int64_t messages_sent() const override { return messages_.load(std::memory_order_relaxed); }
  int64_t bytes_sent() const override { return bytes_.load(std::memory_order_relaxed); }

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
    int32_t peer = 0;
    uint32_t tag = 0;
  };
  Request allocate(int32_t peer, uint32_t tag, bool is_receive, size_t size);
  Entry& entry_of(Request request);

  MPI_Comm comm_;
  size_t chunk_bytes_;
  int32_t node_ = 0, num_nodes_ = 0;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  uint64_t completed_ = 0;
  std::atomic<int64_t> messages_{0}, bytes_{0};
};

}  // namespace dtorch
