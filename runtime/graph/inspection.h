// What a node tells about itself when the controller asks (kInspect, kAnswer): what its devices and transfers are
// doing, what its memory holds, what operators cost, and the events of a timeline. The wire form and its checks are
// those of messages.h.
#pragma once
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/graph/messages.h"

namespace dtorch {

enum class Aspect : uint8_t {
  kStatus = 1,    // what devices and transfers are doing
  kClock,         // what time it is
  kMemory,        // what devices hold; a device answers between two pieces, as the next three
  kStartProfile,  // count calls and time of operators from now on
  kProfile,       // what they cost since then
  kStartTrace,    // note events from now on
  kTrace,         // the events so far
};

struct Inspect {
  uint32_t number = 0;  // that the answer repeats
  Aspect aspect = Aspect::kStatus;
};

// An operator of a piece that is under way.
struct Place {
  Sequence sequence = 0;
  uint32_t op_index = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

enum class Activity : uint8_t {
  kIdle,
  kRuns,   // the operator at `at`
  kWaits,  // at `at`, for the transfer of the operator at `waits_for`
};
struct DeviceStatus {
  int64_t device = 0;
  Activity activity = Activity::kIdle;
  Place at = {}, waits_for = {};
  friend bool operator==(const DeviceStatus&, const DeviceStatus&) = default;
};

enum class TransferPhase : uint8_t {
  kSources,   // local devices, `waits_for`, haven't computed their values
  kReceives,  // messages of the nodes `waits_for` haven't arrived
  kSends,     // the nodes `waits_for` haven't taken their messages
};
struct TransferStatus {
  Place place = {};
  uint64_t number = 0;
  TransferPhase phase = TransferPhase::kSources;
  std::vector<int64_t> waits_for = {};
};

// One call's part of an operator's cost on a device: all calls of a spec together.
struct ProfileRow {
  GraphId graph = 0;
  uint32_t spec = 0;
  int64_t calls = 0;
  int64_t run_ns = 0;   // in kernels, without waiting
  int64_t wait_ns = 0;  // that operators waited for the result of this one, a transfer
  int64_t bytes = 0;    // of the results on this device
  // Of an exchange of ragged rows: what came from other devices. Of other moves layouts tell it.
  int64_t moved_bytes = 0;
  friend bool operator==(const ProfileRow&, const ProfileRow&) = default;
};
struct DeviceProfile {
  int64_t device = 0;
  int64_t window_ns = 0;  // since the profile was started
  std::vector<ProfileRow> rows = {};
};

// An event of a timeline, on the node's clock, as it travels.
enum class TraceKind : uint32_t {
  kOperator,  // a device's part of a call; numbers: place
  kWait,      // within one: for the result of the transfer at `place`
  kStage,     // of a transfer, from the first message sent or taken to the results; place, transfer, stage, bytes sent
  kSend,      // a message handed to the channel at begin; also peer
  kReceive,   // a message that had arrived at end
};
struct TraceEvent {
  int64_t begin_ns = 0, end_ns = 0;
  uint64_t sequence = 0;
  uint64_t transfer = 0;
  int64_t bytes = 0;
  uint32_t op_index = 0;
  TraceKind kind = TraceKind::kOperator;
  int32_t peer = 0;
  uint32_t stage = 0;
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};
static_assert(sizeof(TraceEvent) == 56 && std::is_trivially_copyable_v<TraceEvent>);
// One thread's events.
struct TraceTrack {
  int64_t device = 0;  // -1: the comm thread
  int64_t dropped = 0;
  std::vector<TraceEvent> events = {};
};

struct Answer {
  uint32_t epoch = 0;
  int32_t node = 0;
  uint32_t number = 0;                         // of the question
  int64_t clock_ns = 0;                        // when it was written
  uint64_t machine = 0;                        // processes with the same number share a clock
  std::vector<DeviceStatus> devices = {};      // kStatus: in the order of their slots
  std::vector<TransferStatus> transfers = {};  // kStatus: the first of those under way
  uint32_t num_transfers = 0;                  // all of them
  std::vector<DeviceMemory> memory = {};       // kMemory: in the order of their slots
  std::vector<DeviceProfile> profiles = {};    // kProfile
  std::vector<TraceTrack> tracks = {};         // kTrace
  int64_t asked_ns = 0, received_ns = 0;       // the controller's, on its own clock; they don't travel
};

Message encode(const Inspect& fields);
Message encode(const Answer& fields);
Inspect decode_inspect(const Message& message);
Answer decode_answer(const Message& message);

}  // namespace dtorch
