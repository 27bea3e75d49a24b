// The control channel over MPI point-to-point. Any thread queues messages; only the comm thread calls MPI (D7).
//
//   frame     := kind:u8 has_payload:u8 bulk:u8 zero:u8 epoch:u32 head_bytes:u64 payload_bytes:u64 [head payload]
//   A frame of at most kFrameBytes carries its head and payload (bulk = 0) and arrives in a receive that was posted in
//   advance. A larger message is announced by a bare frame (bulk = 1); head and payload follow on a tag of their own,
//   straight from and into their memory, in chunks.
//
//   A signal is a bare frame whose kind isn't a message's. It doesn't reach the inbox, overtakes what waits, and is
//   dropped when the one before hasn't left yet.
//
// Messages of one sender arrive in order: receives complete in the order in which they were posted, bulk follows the
// order of its announcements, and what comes after an unfinished bulk message waits for it.
#pragma once
#include <mpi.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/comm/comm_thread.h"
#include "runtime/comm/endpoint.h"
#include "runtime/comm/mpi_requests.h"

namespace dtorch {

class MpiControl final : public ControlEndpoint, public ProgressSource {
 public:
  static constexpr size_t kFrameBytes = 16 << 10;

  // Posts the receives, so it counts as a call of MPI. Rank 0 is the controller, rank r node r - 1. Doesn't own `comm`.
  explicit MpiControl(MPI_Comm comm, size_t chunk_bytes = size_t{1} << 30);
  // Withdraws the receives; nothing may be outstanding unless the job fails.
  ~MpiControl() override;

  void send(int32_t to, Message message) override;
  Inbox& inbox() override { return inbox_; }
  int64_t messages_sent() const override { return messages_.load(std::memory_order_relaxed); }
  int64_t bytes_sent() const override { return bytes_.load(std::memory_order_relaxed); }

  void set_lost(int32_t node) override;
  // Any thread: whether set_lost was called for any.
  bool has_lost() const { return has_lost_.load(std::memory_order_acquire); }

  // kUnreachable: the sender can't reach `node`; where the epoch of a message stands. Else it is 0.
  enum class Signal : uint8_t { kHeartbeat = 0xff, kGivenUp = 0xfe, kControllerGone = 0xfd, kUnreachable = 0xfc };
  struct Told {
    int32_t from = kController;
    Signal signal = Signal::kHeartbeat;
    int32_t node = 0;
  };
  // Comm thread only, as the next three.
  void signal(int32_t to, Signal signal, int32_t node = 0);
  // How many frames have come from it so far, those that were dropped because it is lost among them.
  uint64_t frames_from(int32_t address) const { return peers_[static_cast<size_t>(rank_of(address))].frames; }
  // Sends and receives with lost peers whose memory MPI may still use.
  size_t num_abandoned() const { return abandoned_.size(); }
  // `on_signal` is told of every signal but heartbeats; `on_failure`, of a peer with whom MPI fails and from whom
  // nothing is expected any more: without it that is a RuntimeFault of progress(). Set before the comm thread runs;
  // called on it.
  void set_callbacks(std::function<void(const Told&)> on_signal,
                     std::function<void(int32_t, const std::string&)> on_failure);

  // Throws RuntimeFault when MPI fails, DecodeError when a frame is damaged.
  bool progress() override;
  bool needs_polling() const override { return true; }
  bool outstanding() const override;
  void set_wakeup(std::function<void()> wake) override;

 private:
  struct Frame;
  // Completed in order, since MPI matches them in order.
  struct Requests {
    std::deque<MPI_Request> pending;
    bool done();
  };
  struct Outgoing {
    Message message;  // keeps the bytes of bulk alive
    Bytes frame;
    Requests requests;
  };
  struct Incoming {
    Message message;
    Requests requests;
  };
  struct Peer {
    std::deque<Message> waiting;
    std::deque<Outgoing> in_flight;
    std::deque<Incoming> incoming;  // holds something only while bulk is under way
    bool lost = false;
    uint64_t frames = 0;
    Bytes signal_frame;  // of `signal`
    MPI_Request signal = MPI_REQUEST_NULL;
  };
  struct Slot {
    std::array<std::byte, kFrameBytes> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  int32_t address_of(int rank) const { return rank - 1; }
  int rank_of(int32_t address) const;
  bool take_outbox();
  bool push_sends();
  void start_send(int rank, Message message);
  void send_bulk(int rank, const SharedBytes& bytes, Requests& requests);
  bool push_sends_to(int rank);
  bool take_frames();
  bool take_frame(int rank, std::span<const std::byte> bytes);
  bool take_bulk();
  bool take_bulk_from(int rank);
  // Runs `part` of the work with one peer; what MPI says against it is its loss, where on_failure is there.
  template <typename Part>
  bool with_peer(int rank, Part part);
  void drop(Peer& peer);
  void post(Slot& slot);
  std::shared_ptr<Bytes> receive_bulk(int rank, uint64_t size, Requests& requests);

  MPI_Comm comm_;
  size_t chunk_bytes_;
  int rank_ = 0;
  std::vector<Peer> peers_;  // by rank
  std::vector<Slot> slots_;  // a ring
  size_t next_slot_ = 0;
  AbandonedRequests abandoned_;
  uint64_t num_turns_ = 0;  // while it holds any
  std::function<void(const Told&)> on_signal_;
  std::function<void(int32_t, const std::string&)> on_failure_;
  int64_t num_waiting_ = 0, num_in_flight_ = 0, num_incoming_ = 0;  // over all peers

  Inbox inbox_;
  std::atomic<int64_t> messages_{0}, bytes_{0};
  std::atomic<bool> has_outbox_{false}, has_lost_{false};
  mutable std::mutex mutex_;
  std::vector<std::pair<int, Message>> outbox_;  // under mutex_, as are wake_ and lost_
  std::vector<int> lost_;                        // ranks that progress() hasn't dropped yet
  std::vector<std::pair<int, Message>> taken_;
  std::function<void()> wake_;
};

}  // namespace dtorch
