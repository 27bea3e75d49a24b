#include "runtime/comm/mpi_control.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/comm/mpi_error.h"
#include "runtime/comm/mpi_requests.h"

namespace dtorch {
namespace {

constexpr int kFrameTag = 1;
constexpr int kBulkTag = 2;
constexpr size_t kNumSlots = 32;
// Sends that a peer hasn't taken yet hold MPI's memory; what is beyond waits in ours.
constexpr size_t kMaxInFlight = 64;
// Of progress(), between two looks at what was abandoned, some of which never ends.
constexpr uint64_t kTurnsOfAbandoned = 64;
// More than any honest message: a damaged size is refused before memory is asked for.
constexpr uint64_t kMaxBytes = uint64_t{1} << 46;

size_t size_of(const SharedBytes& bytes) { return bytes ? bytes->size() : 0; }

}  // namespace

struct MpiControl::Frame {
  uint8_t kind = 0;
  uint8_t has_payload = 0;
  uint8_t bulk = 0;
  uint8_t zero = 0;
  uint32_t epoch = 0;
  uint64_t head_bytes = 0;
  uint64_t payload_bytes = 0;

  bool is_signal() const {
    return kind >= static_cast<uint8_t>(Signal::kUnreachable) && head_bytes == 0 && payload_bytes == 0;
  }
};

bool MpiControl::Requests::done() {
  while (!pending.empty()) {
    int done = 0;
    DTORCH_MPI(MPI_Test(&pending.front(), &done, MPI_STATUS_IGNORE));
    if (!done) return false;
    pending.pop_front();
  }
  return true;
}

MpiControl::MpiControl(MPI_Comm comm, size_t chunk_bytes) : comm_(comm), chunk_bytes_(chunk_bytes), slots_(kNumSlots) {
  int num_ranks = 0;
  DTORCH_MPI(MPI_Comm_rank(comm_, &rank_));
  DTORCH_MPI(MPI_Comm_size(comm_, &num_ranks));
  peers_.resize(static_cast<size_t>(num_ranks));
  for (Slot& slot : slots_) post(slot);
}

MpiControl::~MpiControl() {
  for (Slot& slot : slots_) withdraw_request(slot.request);
  for (Peer& peer : peers_) {
    for (Incoming& incoming : peer.incoming) {
      for (MPI_Request& request : incoming.requests.pending) withdraw_request(request);
    }
    for (Outgoing& outgoing : peer.in_flight) {
      for (MPI_Request& request : outgoing.requests.pending) abandon_request(request);
    }
    abandon_request(peer.signal);
  }
}

int MpiControl::rank_of(int32_t address) const {
  DTORCH_CHECK(address >= kController && address + 1 < static_cast<int32_t>(peers_.size()),
               "address " + std::to_string(address));
  return address + 1;
}

void MpiControl::send(int32_t to, Message message) {
  const int rank = rank_of(to);
  messages_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(static_cast<int64_t>(sizeof(Frame) + size_of(message.head) + size_of(message.payload)),
                   std::memory_order_relaxed);
  if (rank == rank_) {
    inbox_.push({address_of(rank_), std::move(message)});
    return;
  }
  std::lock_guard lock(mutex_);
  outbox_.emplace_back(rank, std::move(message));
  has_outbox_.store(true, std::memory_order_release);
  if (wake_) wake_();
}

void MpiControl::set_wakeup(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

void MpiControl::set_callbacks(std::function<void(const Told&)> on_signal,
                               std::function<void(int32_t, const std::string&)> on_failure) {
  on_signal_ = std::move(on_signal);
  on_failure_ = std::move(on_failure);
}

void MpiControl::set_lost(int32_t node) {
  const int rank = rank_of(node);
  DTORCH_CHECK(rank != rank_, "a process is lost to others only");
  std::lock_guard lock(mutex_);
  lost_.push_back(rank);
  has_lost_.store(true, std::memory_order_release);
  has_outbox_.store(true, std::memory_order_release);
  if (wake_) wake_();
}

void MpiControl::signal(int32_t to, Signal signal, int32_t node) {
  const int rank = rank_of(to);
  Peer& peer = peers_[static_cast<size_t>(rank)];
  with_peer(rank, [&] {
    int done = 1;
    if (peer.signal != MPI_REQUEST_NULL) DTORCH_MPI(MPI_Test(&peer.signal, &done, MPI_STATUS_IGNORE));
    if (!done) return false;
    const Frame frame{.kind = static_cast<uint8_t>(signal), .epoch = static_cast<uint32_t>(node)};
    peer.signal_frame.resize(sizeof frame);
    std::memcpy(peer.signal_frame.data(), &frame, sizeof frame);
    DTORCH_MPI(MPI_Isend(peer.signal_frame.data(), sizeof frame, MPI_BYTE, rank, kFrameTag, comm_, &peer.signal));
    return false;
  });
}

template <typename Part>
bool MpiControl::with_peer(int rank, Part part) {
  if (!on_failure_) return part();
  try {
    return part();
  } catch (const RuntimeFault& fault) {
    drop(peers_[static_cast<size_t>(rank)]);
    on_failure_(address_of(rank), fault.what());
    return true;
  }
}

// What MPI may still use of its memory lives on until MPI is done with it.
void MpiControl::drop(Peer& peer) {
  peer.lost = true;
  num_waiting_ -= static_cast<int64_t>(peer.waiting.size());
  num_in_flight_ -= static_cast<int64_t>(peer.in_flight.size());
  num_incoming_ -= static_cast<int64_t>(peer.incoming.size());
  peer.waiting.clear();
  for (Outgoing& outgoing : peer.in_flight) {
    const auto kept = std::make_shared<Outgoing>(std::move(outgoing));
    for (MPI_Request& request : kept->requests.pending) abandoned_.add(request, kept);
  }
  peer.in_flight.clear();
  for (Incoming& incoming : peer.incoming) {
    const auto kept = std::make_shared<Incoming>(std::move(incoming));
    for (MPI_Request& request : kept->requests.pending) abandoned_.add_receive(request, kept);
  }
  peer.incoming.clear();
}

bool MpiControl::outstanding() const {
  return num_waiting_ + num_in_flight_ + num_incoming_ != 0 || has_outbox_.load(std::memory_order_acquire);
}

bool MpiControl::progress() {
  bool active = take_outbox();
  if (num_waiting_ + num_in_flight_ != 0) active |= push_sends();
  active |= take_frames();
  if (num_incoming_ != 0) active |= take_bulk();
  if (abandoned_.size() != 0 && ++num_turns_ % kTurnsOfAbandoned == 0) abandoned_.test();
  return active;
}

bool MpiControl::take_outbox() {
  if (!has_outbox_.load(std::memory_order_acquire)) return false;
  std::vector<int> lost;
  {
    std::lock_guard lock(mutex_);
    taken_.swap(outbox_);
    lost.swap(lost_);
    has_outbox_.store(false, std::memory_order_relaxed);
  }
  for (int rank : lost) drop(peers_[static_cast<size_t>(rank)]);
  for (auto& [rank, message] : taken_) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (peer.lost) continue;
    peer.waiting.push_back(std::move(message));
    ++num_waiting_;
  }
  taken_.clear();
  return true;
}

bool MpiControl::push_sends() {
  bool active = false;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    active |= with_peer(rank, [&] { return push_sends_to(rank); });
  return active;
}

bool MpiControl::push_sends_to(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  bool active = false;
  while (true) {
    while (!peer.in_flight.empty() && peer.in_flight.front().requests.done()) {
      peer.in_flight.pop_front();
      --num_in_flight_;
      active = true;
    }
    if (peer.waiting.empty() || peer.in_flight.size() >= kMaxInFlight) return active;
    Message message = std::move(peer.waiting.front());
    peer.waiting.pop_front();
    --num_waiting_;
    ++num_in_flight_;
    start_send(rank, std::move(message));
    active = true;
  }
}

void MpiControl::start_send(int rank, Message message) {
  Outgoing& outgoing = peers_[static_cast<size_t>(rank)].in_flight.emplace_back();
  outgoing.message = std::move(message);
  const SharedBytes& head = outgoing.message.head;
  const SharedBytes& payload = outgoing.message.payload;
  Frame frame;
  frame.kind = static_cast<uint8_t>(outgoing.message.kind);
  frame.has_payload = payload != nullptr;
  frame.epoch = outgoing.message.epoch;
  frame.head_bytes = size_of(head);
  frame.payload_bytes = size_of(payload);
  const size_t whole = sizeof(Frame) + size_of(head) + size_of(payload);
  frame.bulk = whole > kFrameBytes;
  outgoing.frame.resize(frame.bulk ? sizeof(Frame) : whole);
  std::memcpy(outgoing.frame.data(), &frame, sizeof(Frame));
  if (!frame.bulk) {
    std::byte* at = outgoing.frame.data() + sizeof(Frame);
    if (size_of(head) != 0) std::memcpy(at, head->data(), head->size());
    if (size_of(payload) != 0) std::memcpy(at + size_of(head), payload->data(), payload->size());
  }
  MPI_Request& request = outgoing.requests.pending.emplace_back(MPI_REQUEST_NULL);
  DTORCH_MPI(MPI_Isend(outgoing.frame.data(), static_cast<int>(outgoing.frame.size()), MPI_BYTE, rank, kFrameTag, comm_,
                       &request));
  if (!frame.bulk) return;
  send_bulk(rank, head, outgoing.requests);
  send_bulk(rank, payload, outgoing.requests);
}

void MpiControl::send_bulk(int rank, const SharedBytes& bytes, Requests& requests) {
  for (size_t at = 0; at < size_of(bytes); at += chunk_bytes_) {
    const int count = static_cast<int>(std::min(chunk_bytes_, bytes->size() - at));
    MPI_Request& request = requests.pending.emplace_back(MPI_REQUEST_NULL);
    DTORCH_MPI(MPI_Isend(bytes->data() + at, count, MPI_BYTE, rank, kBulkTag, comm_, &request));
  }
}

void MpiControl::post(Slot& slot) {
  DTORCH_MPI(MPI_Irecv(slot.bytes.data(), static_cast<int>(kFrameBytes), MPI_BYTE, MPI_ANY_SOURCE, kFrameTag, comm_,
                       &slot.request));
}

bool MpiControl::take_frames() {
  bool active = false;
  // A bounded number, so that a flood doesn't hold up the data plane.
  for (size_t i = 0; i < kNumSlots; ++i) {
    Slot& slot = slots_[next_slot_];
    int done = 0;
    MPI_Status status;
    DTORCH_MPI(MPI_Test(&slot.request, &done, &status));
    if (!done) break;
    int count = 0;
    DTORCH_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    active |= take_frame(status.MPI_SOURCE, std::span(slot.bytes).first(static_cast<size_t>(count)));
    post(slot);
    next_slot_ = (next_slot_ + 1) % kNumSlots;
  }
  return active;
}

// False of signals, which come at all times and must not keep the thread awake.
bool MpiControl::take_frame(int rank, std::span<const std::byte> bytes) {
  const auto require = [&](bool condition, const char* what) {
    if (!condition) throw DecodeError("control frame from rank " + std::to_string(rank) + ": " + what);
  };
  Frame frame;
  require(bytes.size() >= sizeof(Frame), "cut short");
  std::memcpy(&frame, bytes.data(), sizeof(Frame));
  bytes = bytes.subspan(sizeof(Frame));
  Peer& peer = peers_[static_cast<size_t>(rank)];
  ++peer.frames;
  if (frame.is_signal()) {
    const auto signal = static_cast<Signal>(frame.kind);
    if (signal != Signal::kHeartbeat && on_signal_)
      on_signal_({address_of(rank), signal, static_cast<int32_t>(frame.epoch)});
    return false;
  }
  if (peer.lost) return false;
  require(is_message_kind(frame.kind), "unknown kind");
  require(frame.has_payload <= 1 && frame.bulk <= 1 && (frame.has_payload == 1 || frame.payload_bytes == 0),
          "damaged flags");
  require(frame.head_bytes <= kMaxBytes && frame.payload_bytes <= kMaxBytes, "damaged sizes");

  Incoming incoming;
  Message& message = incoming.message;
  message.kind = static_cast<MessageKind>(frame.kind);
  message.epoch = frame.epoch;
  if (frame.bulk) {
    require(bytes.empty(), "an announcement with bytes");
    message.head = receive_bulk(rank, frame.head_bytes, incoming.requests);
    if (frame.has_payload) message.payload = receive_bulk(rank, frame.payload_bytes, incoming.requests);
  } else {
    require(frame.head_bytes + frame.payload_bytes == bytes.size(), "its sizes don't add up");
    const auto head = bytes.first(frame.head_bytes);
    message.head = std::make_shared<Bytes>(head.begin(), head.end());
    const auto payload = bytes.subspan(frame.head_bytes);
    if (frame.has_payload) message.payload = std::make_shared<Bytes>(payload.begin(), payload.end());
    if (peer.incoming.empty()) {
      inbox_.push({address_of(rank), std::move(message)});
      return true;
    }
  }
  peer.incoming.push_back(std::move(incoming));
  ++num_incoming_;
  return true;
}

std::shared_ptr<Bytes> MpiControl::receive_bulk(int rank, uint64_t size, Requests& requests) {
  auto bytes = std::make_shared<Bytes>(size);
  for (size_t at = 0; at < size; at += chunk_bytes_) {
    const int count = static_cast<int>(std::min(chunk_bytes_, bytes->size() - at));
    MPI_Request& request = requests.pending.emplace_back(MPI_REQUEST_NULL);
    DTORCH_MPI(MPI_Irecv(bytes->data() + at, count, MPI_BYTE, rank, kBulkTag, comm_, &request));
  }
  return bytes;
}

bool MpiControl::take_bulk() {
  bool active = false;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank)
    active |= with_peer(rank, [&] { return take_bulk_from(rank); });
  return active;
}

bool MpiControl::take_bulk_from(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  bool active = false;
  while (!peer.incoming.empty() && peer.incoming.front().requests.done()) {
    inbox_.push({address_of(rank), std::move(peer.incoming.front().message)});
    peer.incoming.pop_front();
    --num_incoming_;
    active = true;
  }
  return active;
}

}  // namespace dtorch
