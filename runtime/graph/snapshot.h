// A snapshot: the values of all Graphs at one place of the total order (a cut), kept on the nodes so that a job can go
// on from there when one of them is lost (docs/reliability.md). Every node keeps what its devices hold; a box that too
// few nodes hold is also sent to the node's buddies. What lives at a cut, and who keeps what, follows from the stream,
// so that all processes agree on it. The messages, and pure functions; any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph/templates.h"

namespace dtorch {

using SnapshotId = uint64_t;  // 0: the empty one at the start of a job

// A value that lives at the cut.
struct LiveValue {
  GraphId graph = 0;
  OperandId slot = 0;
  const TensorMeta* meta = nullptr;
  bool is_ragged = false;  // its size is data (ops/def/row_exchange.h)
  friend bool operator==(const LiveValue&, const LiveValue&) = default;
};

inline constexpr int32_t kNoBuddy = -1;
// Where a snapshot is kept.
struct SnapshotPlaces {
  std::vector<int32_t> node_of_device;
  // By node, `num_copies` each, the preferred first; kNoBuddy behind them where there are fewer. A node isn't its own.
  std::vector<int32_t> buddies;
  // Every box is on one node more than this, if there are as many, so that so many may be lost at once.
  int32_t num_copies = 1;
  int32_t num_nodes() const { return static_cast<int32_t>(buddies.size()) / num_copies; }
  std::span<const int32_t> buddies_of(int32_t node) const {
    const auto count = static_cast<size_t>(num_copies);
    return std::span(buddies).subspan(static_cast<size_t>(node) * count, count);
  }
  friend bool operator==(const SnapshotPlaces&, const SnapshotPlaces&) = default;
};

enum class SnapshotAction : uint8_t {
  kTake = 1,  // the cut is here: keep what devices hold now
  kStore,     // everything before the cut has finished: send copies to buddies, and say when all are there
  kCommit,    // it is the one to go back to: earlier ones aren't needed any more
  kRestore,   // the first thing in an epoch: devices begin with its values
  kDrop,      // it won't be stored: what is kept of it isn't needed
};
struct SnapshotOrder {
  uint32_t epoch = 0;
  SnapshotId snapshot = 0;
  SnapshotAction action = SnapshotAction::kTake;
  // kStore, kRestore: ascending by Graph and slot.
  std::vector<LiveValue> values = {};
  SnapshotPlaces places = {};               // kStore: from now on; kRestore: until now
  std::vector<uint64_t> done_effects = {};  // kRestore: numbers of effects that were had (effects.h)
};

// One device's part of a value, from node to node.
struct SnapshotPart {
  uint32_t epoch = 0;
  SnapshotId snapshot = 0;
  int64_t owner = 0;   // the device whose part it is
  int64_t device = 0;  // that begins with it; the owner when it is a copy for a buddy
  bool is_copy = false;
  GraphId graph = 0;
  OperandId slot = 0;
  // The payload is the memory from the view's first element to its last, behind `lead` bytes that keep its alignment.
  DType dtype = kFloat32;
  Shape local_shape = {}, strides = {};
  int64_t lead = 0;
  // Instead of a value: the failure that it depends on.
  bool is_poisoned = false;
  std::string poison = {};
  int64_t poison_device = 0;
  Sequence poison_sequence = 0;
  uint32_t poison_op_index = 0;
};

// Elements from a view's first to its last; -1 when they don't fit or a stride is negative.
int64_t extent_of(const Shape& local_shape, const Shape& strides);

// Everything that this node has to keep is there, or won't be.
struct SnapshotStored {
  uint32_t epoch = 0;
  int32_t node = 0;
  SnapshotId snapshot = 0;
  int64_t own_bytes = 0;     // of its devices' values
  int64_t copy_bytes = 0;    // kept for others
  std::string problem = {};  // why it won't
};

Message encode(const SnapshotPart& fields, SharedBytes payload);
Message encode(const SnapshotStored& fields);
SnapshotPart decode_snapshot_part(const Message& message);
SnapshotStored decode_snapshot_stored(const Message& message);

// A copy of a box, from the first of the devices that hold it.
struct SnapshotCopy {
  size_t value = 0;  // index
  int64_t owner = 0;
  int32_t to = 0;
  friend auto operator<=>(const SnapshotCopy&, const SnapshotCopy&) = default;
};
// All copies that are kept, in an order that is the same everywhere.
std::vector<SnapshotCopy> copies_of(std::span<const LiveValue> values, const SnapshotPlaces& places);

// How a device whose node is lost gets its part of a value: `from` has it, as a device's part or as a copy.
struct SnapshotMove {
  size_t value = 0;
  int64_t device = 0;
  int64_t owner = 0;  // whose part it is: an equal one's
  bool from_copy = false;
  int32_t from = 0, to = 0;  // nodes; may be the same
};
struct SnapshotMoves {
  std::vector<SnapshotMove> moves;
  std::vector<size_t> lost;  // values of which a box has nobody left
};
// For all devices that are bound to another node than when it was stored. live: by node.
SnapshotMoves moves_of(std::span<const LiveValue> values, const SnapshotPlaces& stored,
                       std::span<const int32_t> node_of_device, const std::vector<bool>& live);

}  // namespace dtorch
