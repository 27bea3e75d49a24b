// The messages between the Main-Controller and the Sub-Controllers, and their wire form (messages.fbs, FlatBuffers; the
// format is described at the top of wire.cc). Every message carries (epoch, sequence). Bytes of tensors travel out of
// band in `payload`. decode_* verify everything (sizes, counts, operator and operand numbers, dtypes, placements) and
// throw DecodeError.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/graph/logical_graph.h"

namespace dtorch {

using Bytes = std::vector<std::byte>;
using SharedBytes = std::shared_ptr<const Bytes>;

enum class MessageKind : uint8_t {
  kHello = 1,  // Sub-Controller -> controller, once: who am I
  kConfig,     // controller -> Sub-Controller, once: binding and settings
  kPiece,      // controller -> Sub-Controller: operators
  kFeed,       // controller -> Sub-Controller: a host tensor that a later piece uses
  kAck,        // Sub-Controller -> controller: pieces finished, with statistics
  kError,      // Sub-Controller -> controller: an operator failed
  kReadData,   // Sub-Controller -> controller: one box of a value that is read
  kShutdown,   // controller -> Sub-Controller: end, with the job's exit code
  kGoodbye,    // Sub-Controller -> controller: answer to kShutdown, nothing follows
  kResetPeak,  // controller -> Sub-Controller: peaks of memory count from now on; no fields
};

struct Message {
  MessageKind kind = MessageKind::kHello;
  SharedBytes head;     // encoded fields; the same bytes may be sent to many nodes
  SharedBytes payload;  // tensor bytes, or null
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
  int32_t num_nodes = 0;
  bool check_metadata = true;  // compare every kernel's real shape and dtype with the inferred ones (I2)
  bool ordered_reductions = true;
  int32_t threads_per_device = 1;
  double deadline_s = 300;
};

// A contiguous part of a Graph's stream. A subgraph is one or more pieces; its boundaries depend on the stream only,
// those of pieces don't matter to anybody.
struct Piece {
  uint32_t epoch = 0;
  Sequence sequence = 0;
  GraphId graph = 0;
  uint64_t first_transfer = 0;          // number of the first operator of this piece that moves data between devices
  bool wants_ack_now = false;           // a read waits for it
  std::vector<OperatorSpec> new_specs;  // specs that this piece is the first to use
  LogicalGraph graph_part;              // without source lines
};

struct Feed {
  uint32_t epoch = 0;
  uint64_t feed = 0;  // number that the from_host operator names
  uint32_t num_uses = 1;
};

struct Ack {
  uint32_t epoch = 0;
  int32_t node = 0;
  std::vector<Sequence> sequences;
  int64_t bytes_in_use = 0;  // of this node's devices
  int64_t peak_bytes = 0;    // of its largest device
  int64_t kernels_run = 0;
  int64_t data_bytes_sent = 0;  // data plane, to other nodes
  int64_t data_messages_sent = 0;
  std::vector<int64_t> device_bytes_in_use, device_peak_bytes;  // by local index; both of one length
};

struct ErrorReport {
  uint32_t epoch = 0;
  int32_t node = 0;
  int64_t device = -1;  // -1: the node as a whole
  Sequence sequence = 0;
  uint32_t op_index = 0;  // index in the piece
  std::string message;    // what the kernel said
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

// Encodes pieces for all nodes; remembers which meshes were defined before, so that a mesh's device list travels once.
class PieceEncoder {
 public:
  Message encode(const Piece& piece);

 private:
  std::unordered_map<const MeshData*, uint32_t> mesh_ids_;
};

// Decodes the pieces of one controller. `num_ops` and `num_devices` bound operator and device numbers.
class PieceDecoder {
 public:
  PieceDecoder(uint16_t num_ops, int64_t num_devices) : num_ops_(num_ops), num_devices_(num_devices) {}
  Piece decode(const Message& message);

 private:
  uint16_t num_ops_;
  int64_t num_devices_;
  std::vector<DeviceMesh> meshes_;
  // Per Graph: (inputs, outputs) counts of every known spec, to verify calls against.
  std::unordered_map<GraphId, std::vector<std::pair<uint16_t, uint16_t>>> specs_;
};

// One byte string that holds a whole message, for channels that carry bytes: kind, length of head, head, payload.
Bytes pack(const Message& message);
Message unpack(std::span<const std::byte> bytes);

}  // namespace dtorch
