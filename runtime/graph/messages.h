// The messages between the Main-Controller and the Sub-Controllers, and their wire form (messages.fbs, FlatBuffers; the
// format is described at the top of wire.cc). Bytes of tensors travel out of
// band in `payload`. decode_* verify everything (sizes, counts, operator and operand numbers, dtypes, placements) and
// throw DecodeError.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/graph/device_graph_stats.h"
#include "runtime/graph/logical_graph.h"

namespace dtorch {

using Bytes = std::vector<std::byte>;
using SharedBytes = std::shared_ptr<const Bytes>;

enum class MessageKind : uint8_t {
  kHello = 1,       // Sub-Controller -> controller, once: who am I
  kConfig,          // controller -> Sub-Controller, once an epoch: binding and settings
  kPiece,           // controller -> Sub-Controller: operators
  kFeed,            // controller -> Sub-Controller: a host tensor that a later piece uses
  kAck,             // Sub-Controller -> controller: pieces finished, with statistics
  kError,           // Sub-Controller -> controller: an operator failed
  kReadData,        // Sub-Controller -> controller: one box of a value that is read
  kShutdown,        // controller -> Sub-Controller: end, with the job's exit code
  kGoodbye,         // Sub-Controller -> controller: answer to kShutdown, nothing follows
  kResetPeak,       // controller -> Sub-Controller: peaks of memory count from now on; no fields
  kTemplate,        // controller -> Sub-Controller: operators that will come again (templates.h)
  kReplay,          // controller -> Sub-Controller: they come now
  kInspect,         // controller -> Sub-Controller: tell something about yourself
  kAnswer,          // Sub-Controller -> controller: answer to kInspect
  kSnapshot,        // controller -> Sub-Controller: keep values, or begin with them (snapshot.h)
  kSnapshotPart,    // Sub-Controller -> Sub-Controller: a device's part of a kept value
  kSnapshotStored,  // Sub-Controller -> controller: a snapshot's copies are there
};
inline constexpr MessageKind kLastMessageKind = MessageKind::kSnapshotStored;
// Whether a byte that came from outside is one of them.
bool is_message_kind(uint8_t code);

struct Message {
  MessageKind kind = MessageKind::kHello;
  SharedBytes head;     // encoded fields; the same bytes may be sent to many nodes
  SharedBytes payload;  // tensor bytes, or null
  // Of the nodes' state that it belongs to; 0 where it belongs to none. Not in the head, so that the same bytes may be
  // sent again in a later epoch.
  uint32_t epoch = 0;
};

struct Hello {
  int32_t node = 0;
  std::string host;
  int64_t pid = 0;
  std::string versions;        // DTorch, wire, MPI, LibTorch
  uint64_t registry_hash = 0;  // operators registered in this process
  int32_t num_cores = 0;
};

struct Config {
  uint32_t epoch = 0;
  std::vector<int32_t> node_of_device;  // see DeviceBinding
  std::vector<int32_t> slot_of_device;
  int32_t num_nodes = 0;       // lost ones included
  bool check_metadata = true;  // compare every kernel's real shape and dtype with the inferred ones (I2)
  bool ordered_reductions = true;
  int32_t threads_per_device = 1;
  double deadline_s = 300;
  int32_t fan_out = 8;  // width of the tree in which messages to all nodes travel (runtime/comm/fan_out.h)
  std::vector<int32_t> live_nodes = {};  // ascending; none: all
  int32_t compute_streams = 1;           // a device
  bool device_graphs = false;            // what repeats on a device that runs behind the host is captured
};

// A contiguous part of a Graph's stream. A subgraph is one or more pieces; its boundaries depend on the stream only,
// those of pieces don't matter to anybody.
struct Piece {
  uint32_t epoch = 0;
  Sequence sequence = 0;  // 0: it only defines specs, and isn't acknowledged
  GraphId graph = 0;
  uint64_t first_transfer = 0;          // number of the first operator of this piece that moves data between devices
  bool wants_ack_now = false;           // a read waits for it
  bool wants_statistics = false;        // every node sends its statistics when it has finished it
  bool closes_graph = false;            // its Graph's last: nodes forget what they know of it
  std::vector<OperatorSpec> new_specs;  // specs that this piece is the first to use
  LogicalGraph graph_part;              // without source lines
};

struct Feed {
  uint32_t epoch = 0;
  uint64_t feed = 0;  // number that the from_host operator names
  uint32_t num_uses = 1;
  std::vector<int32_t> nodes = {};  // that use it; none: the one that gets the message
};

struct Ack {
  uint32_t epoch = 0;
  int32_t node = 0;
  std::vector<Sequence> sequences;  // finished by the node and all below it; none: statistics only
  int64_t bytes_in_use = 0;         // of this node's devices
  int64_t peak_bytes = 0;           // of its largest device
  int64_t kernels_run = 0;
  int64_t data_bytes_sent = 0;  // data plane, to other nodes
  int64_t data_messages_sent = 0;
  std::vector<int64_t> device_bytes_in_use, device_peak_bytes;  // by local index; both of one length
  DeviceGraphStats device_graphs = {};                          // of this node's devices
};

// Set in LiveTensor::slot: the rest is the value's name in the instance of a template that is under way (templates.h).
inline constexpr OperandId kNameInInstance = 0x80000000u;
// A value on a device; its storage may be shared with other values.
struct LiveTensor {
  GraphId graph = 0;
  OperandId slot = 0;
  int64_t storage_bytes = 0;
  friend bool operator==(const LiveTensor&, const LiveTensor&) = default;
};
struct DeviceMemory {
  int64_t device = 0;
  int64_t bytes_in_use = 0, peak_bytes = 0;
  int64_t num_tensors = 0;
  std::vector<LiveTensor> largest = {};  // one a storage, in order of size
  friend bool operator==(const DeviceMemory&, const DeviceMemory&) = default;
};

struct ErrorReport {
  uint32_t epoch = 0;
  int32_t node = 0;
  int64_t device = -1;  // -1: the node as a whole
  Sequence sequence = 0;
  uint32_t op_index = 0;                    // index in the piece
  std::string message;                      // what the kernel said
  std::optional<DeviceMemory> memory = {};  // when memory was short: what the device held
};

struct ReadData {
  uint32_t epoch = 0;
  int32_t node = 0;
  uint64_t read = 0;  // number that the read operator names
  Box box;            // global coordinates; payload: the box's elements, row-major
};

struct Shutdown {
  int32_t exit_code = 0;
  std::string reason;
};

Message encode(const Hello& fields);
Message encode(const Config& fields);
Message encode(const Feed& fields, SharedBytes payload);
Message encode(const Ack& fields);
Message encode(const ErrorReport& fields);
Message encode(const ReadData& fields, SharedBytes payload);
Message encode(const Shutdown& fields);
Message encode_goodbye(int32_t node);
Message encode_reset_peak();
Hello decode_hello(const Message& message);
Config decode_config(const Message& message);
Feed decode_feed(const Message& message);
Ack decode_ack(const Message& message);
ErrorReport decode_error(const Message& message);
ReadData decode_read_data(const Message& message);
Shutdown decode_shutdown(const Message& message);
int32_t decode_goodbye(const Message& message);
void decode_reset_peak(const Message& message);

struct TemplateDefinition;
struct Replay;
struct SnapshotOrder;
struct KnownTemplates;

// Encodes pieces for all nodes; remembers which meshes were defined before, so that a mesh's device list travels once.
class PieceEncoder {
 public:
  Message encode(const Piece& piece);
  Message encode(const TemplateDefinition& definition);
  // The same with specs that lie elsewhere, instead of those in `new_specs`.
  Message encode(const Piece& piece, std::span<const OperatorSpec* const> new_specs);
  Message encode(const TemplateDefinition& definition, std::span<const OperatorSpec* const> new_specs);
  // kRestore is for readers that know nothing: it defines all meshes.
  Message encode(const SnapshotOrder& order);
  size_t num_meshes() const { return mesh_ids_.size(); }
  // This one, as it was when it knew so many meshes.
  PieceEncoder at(size_t num_meshes) const;

 private:
  std::unordered_map<const MeshData*, uint32_t> mesh_ids_;
};

// Decodes the pieces of one controller. `num_ops` and `num_devices` bound operator and device numbers.
class PieceDecoder {
 public:
  PieceDecoder(uint16_t num_ops, int64_t num_devices) : num_ops_(num_ops), num_devices_(num_devices) {}
  Piece decode(const Message& message);
  TemplateDefinition decode_template(const Message& message);
  Replay decode_replay(const Message& message);
  SnapshotOrder decode_snapshot(const Message& message);

 private:
  class Reading;
  uint16_t num_ops_;
  int64_t num_devices_;
  std::vector<DeviceMesh> meshes_;
  // Per Graph: (inputs, outputs) counts of every known spec, to verify calls against.
  std::unordered_map<GraphId, std::vector<std::pair<uint16_t, uint16_t>>> specs_;
  std::unordered_map<GraphId, std::shared_ptr<KnownTemplates>> templates_;
};

// One byte string that holds a whole message, for channels that carry bytes: kind, length of head, head, payload.
Bytes pack(const Message& message);
Message unpack(std::span<const std::byte> bytes);

}  // namespace dtorch
