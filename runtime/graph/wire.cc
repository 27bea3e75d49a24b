// The wire form of control messages. Pure functions, any thread.
//
//   head      := a FlatBuffer of messages.fbs, file identifier "DT" version letter  (version '3'; letter 'a' + kind)
//   payload   := bytes of one tensor, row-major, without a header                   (kFeed, kReadData, kSnapshotPart)
//
//   piece     := sequence graph first_transfer wants_ack_now wants_statistics closes_graph definitions calls
//   definitions := mesh* meta* spec*
//                A mesh is numbered over the life of the encoder, a meta within its piece, a spec per Graph. Metas and
//                specs are flat arrays: what has several lengths (sizes, placements, shard orders, operands,
//                attributes) lies in arrays of its own, where each one's part follows that of the one before.
//   calls     := call* operand* scalar*
//                Flat arrays. A call is 12 bytes: spec, counts of inputs, outputs and scalars, flags. Its operands
//                (inputs, then outputs) and scalars follow those of the call before it, so that they need no offsets
//                and can't overlap. 4 bytes an operand, 8 a scalar.
//   template  := a piece without sequence, and its number; operands are names (templates.h)
//   replay    := flat, without FlatBuffers; see replay_wire.cc
//
// A reader trusts nothing. FlatBuffers' verifier checks offsets and sizes; decode_* check what the numbers mean and
// throw DecodeError. Work and memory of a decode are proportional to the message's length.
#include <algorithm>
#include <cmath>

#include "runtime/graph/compute_streams.h"
#include "runtime/graph/wire_internal.h"

namespace dtorch {

namespace wire {

namespace {

constexpr char kVersion = '3';

const char* name_of_kind(MessageKind kind) {
  switch (kind) {
    case MessageKind::kHello:
      return "hello";
    case MessageKind::kConfig:
      return "config";
    case MessageKind::kPiece:
      return "piece";
    case MessageKind::kFeed:
      return "feed";
    case MessageKind::kAck:
      return "ack";
    case MessageKind::kError:
      return "error";
    case MessageKind::kReadData:
      return "read data";
    case MessageKind::kShutdown:
      return "shutdown";
    case MessageKind::kGoodbye:
      return "goodbye";
    case MessageKind::kResetPeak:
      return "reset peak";
    case MessageKind::kTemplate:
      return "template";
    case MessageKind::kReplay:
      return "replay";
    case MessageKind::kInspect:
      return "inspect";
    case MessageKind::kAnswer:
      return "answer";
    case MessageKind::kSnapshot:
      return "snapshot";
    case MessageKind::kSnapshotPart:
      return "snapshot part";
    case MessageKind::kSnapshotStored:
      return "snapshot stored";
  }
  return "unknown";
}

// Four letters and the end.
void make_identifier(MessageKind kind, char* out) {
  put_identifier(kind, out);
  out[4] = '\0';
}

}  // namespace

void put_identifier(MessageKind kind, char* four_letters) {
  four_letters[0] = 'D';
  four_letters[1] = 'T';
  four_letters[2] = kVersion;
  four_letters[3] = static_cast<char>('a' + static_cast<int>(kind));
}

void fail(MessageKind kind, const std::string& what) {
  throw DecodeError(std::string("control message '") + name_of_kind(kind) + "' doesn't decode: " + what);
}

void seal(flatbuffers::FlatBufferBuilder& builder, flatbuffers::uoffset_t root, Message& message) {
  char identifier[5];
  make_identifier(message.kind, identifier);
  builder.Finish(flatbuffers::Offset<void>(root), identifier);
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  message.head = std::make_shared<const Bytes>(data, data + builder.GetSize());
}

void check_envelope(const Message& message, MessageKind kind) {
  if (message.kind != kind) fail(kind, std::string("the message is a '") + name_of_kind(message.kind) + "'");
  if (message.head == nullptr || message.head->size() < 12) fail(kind, "it is too short");
  if (message.head->size() > kMaxHeadBytes) fail(kind, "it is longer than 1 GiB");
  char identifier[5];
  make_identifier(kind, identifier);
  const std::byte* found = message.head->data() + 4;
  if (std::memcmp(found, identifier, 2) == 0 && found[2] != std::byte{kVersion}) {
    fail(kind, "the sender speaks another version of the wire form; all ranks must run the same build");
  }
  if (std::memcmp(found, identifier, 4) != 0) fail(kind, "the bytes are no such message");
}

Shape Reader::sizes(const flatbuffers::Vector<int64_t>* vector, const char* what) {
  return shape_of(items<int64_t>(vector), what);
}

Shape Reader::shape_of(std::span<const int64_t> values, const char* what) const {
  if (values.size() > static_cast<size_t>(kMaxDims)) fail(std::string(what) + " has more than 8 dims");
  Shape shape;
  for (int64_t value : values) {
    if (value < 0) fail(std::string(what) + " has the negative size " + std::to_string(value));
    shape.push_back(value);
  }
  return shape;
}

}  // namespace wire

namespace {

using flatbuffers::FlatBufferBuilder;

std::string text_of(const flatbuffers::String* text) { return text == nullptr ? std::string() : text->str(); }

Message in_epoch(uint32_t epoch, Message message) {
  message.epoch = epoch;
  return message;
}

int32_t checked_node(const wire::Reader& reader, int32_t node) {
  reader.require(node >= 0, "its node number is negative");
  return node;
}

bool is_empty(const SharedBytes& bytes) { return bytes == nullptr || bytes->empty(); }

// Elements of a box; -1 when the count, or a corner of the box, doesn't fit.
int64_t checked_elements(const Box& box) {
  int64_t count = 1;
  for (int64_t d = 0; d < box.ndim(); ++d) {
    int64_t end = 0;
    if (__builtin_add_overflow(box.offset[d], box.size[d], &end) || __builtin_mul_overflow(count, box.size[d], &count))
      return -1;
  }
  return count;
}

}  // namespace

bool is_message_kind(uint8_t code) {
  return code >= static_cast<uint8_t>(MessageKind::kHello) && code <= static_cast<uint8_t>(kLastMessageKind);
}

// --- hello
// ------------------------------------------------------------------------------------------------------------------------
Message encode(const Hello& fields) {
  FlatBufferBuilder builder(512);
  auto host = builder.CreateString(fields.host);
  auto versions = builder.CreateString(fields.versions);
  auto root =
      wire::CreateHello(builder, fields.node, host, fields.pid, versions, fields.registry_hash, fields.num_cores);
  return wire::seal(builder, root, MessageKind::kHello);
}

Hello decode_hello(const Message& message) {
  const auto& head = wire::verified<wire::Hello>(message, MessageKind::kHello);
  const wire::Reader reader(message, MessageKind::kHello);
  reader.require(head.num_cores() >= 0, "its number of cores is negative");
  return {checked_node(reader, head.node()), text_of(head.host()), head.pid(),
          text_of(head.versions()),          head.registry_hash(), head.num_cores()};
}

// --- config
// -----------------------------------------------------------------------------------------------------------------------
Message encode(const Config& fields) {
  FlatBufferBuilder builder(512);
  auto nodes = wire::put(builder, fields.node_of_device);
  auto slots = wire::put(builder, fields.slot_of_device);
  auto live = wire::put(builder, fields.live_nodes);
  auto root = wire::CreateConfig(builder, nodes, slots, fields.num_nodes, fields.check_metadata,
                                 fields.ordered_reductions, fields.threads_per_device, fields.deadline_s,
                                 fields.fan_out, live, fields.compute_streams, fields.device_graphs);
  return in_epoch(fields.epoch, wire::seal(builder, root, MessageKind::kConfig));
}

Config decode_config(const Message& message) {
  const auto& head = wire::verified<wire::Config>(message, MessageKind::kConfig);
  wire::Reader reader(message, MessageKind::kConfig);
  Config fields;
  fields.epoch = message.epoch;
  fields.node_of_device = reader.items<int32_t>(head.node_of_device());
  fields.slot_of_device = reader.items<int32_t>(head.slot_of_device());
  fields.num_nodes = head.num_nodes();
  fields.check_metadata = head.check_metadata();
  fields.ordered_reductions = head.ordered_reductions();
  fields.threads_per_device = head.threads_per_device();
  fields.deadline_s = head.deadline_s();
  fields.fan_out = head.fan_out();
  fields.live_nodes = reader.items<int32_t>(head.live_nodes());
  fields.compute_streams = head.compute_streams();
  fields.device_graphs = head.device_graphs();
  reader.require(fields.num_nodes >= 1, "it has no node");
  for (size_t i = 0; i < fields.live_nodes.size(); ++i) {
    const int32_t node = fields.live_nodes[i];
    reader.require(node >= 0 && node < fields.num_nodes && (i == 0 || node > fields.live_nodes[i - 1]),
                   "its live nodes aren't nodes in order");
  }
  reader.require(fields.node_of_device.size() == fields.slot_of_device.size(),
                 "it binds devices to nodes and slots unevenly");
  for (int32_t node : fields.node_of_device)
    reader.require(node >= 0 && node < fields.num_nodes, "a device is on an unknown node");
  const auto num_devices = static_cast<int64_t>(fields.slot_of_device.size());
  for (int32_t slot : fields.slot_of_device)
    reader.require(slot >= 0 && slot < num_devices, "a device is in an unknown slot");
  reader.require(fields.threads_per_device >= 1 && fields.threads_per_device <= 4096,
                 "its threads per device are outside [1, 4096]");
  reader.require(fields.fan_out >= 1 && fields.fan_out <= 1024, "its fan-out is outside [1, 1024]");
  reader.require(fields.compute_streams >= 1 && fields.compute_streams <= kMaxComputeStreams,
                 "its compute streams are outside [1, 16]");
  reader.require(std::isfinite(fields.deadline_s) && fields.deadline_s >= 0, "its deadline is no length of time");
  return fields;
}

// --- feed
// -------------------------------------------------------------------------------------------------------------------------
Message encode(const Feed& fields, SharedBytes payload) {
  FlatBufferBuilder builder(128);
  auto nodes = wire::put(builder, fields.nodes);
  auto root = wire::CreateFeed(builder, fields.feed, fields.num_uses, nodes);
  return in_epoch(fields.epoch, wire::seal(builder, root, MessageKind::kFeed, std::move(payload)));
}

Feed decode_feed(const Message& message) {
  const auto& head = wire::verified<wire::Feed>(message, MessageKind::kFeed);
  wire::Reader reader(message, MessageKind::kFeed);
  reader.require(head.num_uses() != 0, "it has no use");
  Feed fields{message.epoch, head.feed(), head.num_uses(), reader.items<int32_t>(head.nodes())};
  for (int32_t node : fields.nodes) checked_node(reader, node);
  return fields;
}

// --- ack
// --------------------------------------------------------------------------------------------------------------------------
Message encode(const Ack& fields) {
  FlatBufferBuilder builder(256 + fields.sequences.size() * sizeof(Sequence));
  auto sequences = wire::put(builder, fields.sequences);
  auto in_use = wire::put(builder, fields.device_bytes_in_use);
  auto peaks = wire::put(builder, fields.device_peak_bytes);
  const DeviceGraphStats& graphs = fields.device_graphs;
  std::vector<int64_t> counts;
  if (graphs != DeviceGraphStats{}) {
    counts = {graphs.captured, graphs.launched, graphs.kernels};
    counts.insert(counts.end(), graphs.fallbacks.begin(), graphs.fallbacks.end());
  }
  auto graph_counts = wire::put(builder, counts);
  auto root =
      wire::CreateAck(builder, fields.node, sequences, fields.bytes_in_use, fields.peak_bytes, fields.kernels_run,
                      fields.data_bytes_sent, fields.data_messages_sent, in_use, peaks, graph_counts);
  return in_epoch(fields.epoch, wire::seal(builder, root, MessageKind::kAck));
}

Ack decode_ack(const Message& message) {
  const auto& head = wire::verified<wire::Ack>(message, MessageKind::kAck);
  wire::Reader reader(message, MessageKind::kAck);
  Ack fields;
  fields.epoch = message.epoch;
  fields.node = checked_node(reader, head.node());
  fields.sequences = reader.items<Sequence>(head.sequences());
  fields.bytes_in_use = head.bytes_in_use();
  fields.peak_bytes = head.peak_bytes();
  fields.kernels_run = head.kernels_run();
  fields.data_bytes_sent = head.data_bytes_sent();
  fields.data_messages_sent = head.data_messages_sent();
  for (int64_t figure : {fields.bytes_in_use, fields.peak_bytes, fields.kernels_run, fields.data_bytes_sent,
                         fields.data_messages_sent}) {
    reader.require(figure >= 0, "a statistic is negative");
  }
  fields.device_bytes_in_use = reader.items<int64_t>(head.device_bytes_in_use());
  fields.device_peak_bytes = reader.items<int64_t>(head.device_peak_bytes());
  reader.require(fields.device_bytes_in_use.size() == fields.device_peak_bytes.size(),
                 "it has bytes in use and peaks of different numbers of devices");
  for (const auto* figures : {&fields.device_bytes_in_use, &fields.device_peak_bytes}) {
    for (int64_t figure : *figures) reader.require(figure >= 0, "a device's memory is negative");
  }
  const auto counts = reader.items<int64_t>(head.device_graphs());
  if (counts.empty()) return fields;
  reader.require(counts.size() == 3 + kNumGraphFallbacks, "its device graphs have another number of counts");
  for (int64_t count : counts) reader.require(count >= 0, "a count of device graphs is negative");
  fields.device_graphs.captured = counts[0];
  fields.device_graphs.launched = counts[1];
  fields.device_graphs.kernels = counts[2];
  std::copy(counts.begin() + 3, counts.end(), fields.device_graphs.fallbacks.begin());
  return fields;
}

// --- error
// ------------------------------------------------------------------------------------------------------------------------
Message encode(const ErrorReport& fields) {
  FlatBufferBuilder builder(512);
  auto text = builder.CreateString(fields.message);
  flatbuffers::Offset<wire::DeviceMemory> memory;
  if (fields.memory) memory = wire::put(builder, *fields.memory);
  auto root =
      wire::CreateErrorReport(builder, fields.node, fields.device, fields.sequence, fields.op_index, text, memory);
  return in_epoch(fields.epoch, wire::seal(builder, root, MessageKind::kError));
}

ErrorReport decode_error(const Message& message) {
  const auto& head = wire::verified<wire::ErrorReport>(message, MessageKind::kError);
  wire::Reader reader(message, MessageKind::kError);
  reader.require(head.device() >= -1, "its device number is negative");
  ErrorReport report{message.epoch,   checked_node(reader, head.node()),
                     head.device(),   head.sequence(),
                     head.op_index(), text_of(head.message())};
  if (head.memory() != nullptr) report.memory = wire::take_memory(reader, *head.memory());
  return report;
}

// --- read data
// --------------------------------------------------------------------------------------------------------------------
Message encode(const ReadData& fields, SharedBytes payload) {
  FlatBufferBuilder builder(256);
  auto offset = wire::put(builder, fields.box.offset);
  auto size = wire::put(builder, fields.box.size);
  auto root = wire::CreateReadData(builder, fields.node, fields.read, offset, size);
  return in_epoch(fields.epoch, wire::seal(builder, root, MessageKind::kReadData, std::move(payload)));
}

ReadData decode_read_data(const Message& message) {
  const auto& head = wire::verified<wire::ReadData>(message, MessageKind::kReadData);
  wire::Reader reader(message, MessageKind::kReadData);
  ReadData fields{message.epoch, checked_node(reader, head.node()), head.read(), {}};
  fields.box.offset = reader.sizes(head.offset(), "its box's offset");
  fields.box.size = reader.sizes(head.size(), "its box");
  reader.require(fields.box.offset.size() == fields.box.size.size(), "its box's offset and size differ in dims");
  const int64_t elements = checked_elements(fields.box);
  reader.require(elements >= 0, "its box is too large");
  if (elements == 0) {
    reader.require(is_empty(message.payload), "an empty box comes with data");
    return fields;
  }
  reader.require(!is_empty(message.payload), "the box's data are missing");
  const auto bytes = static_cast<int64_t>(message.payload->size());
  const int64_t item = bytes / elements;
  reader.require(bytes % elements == 0 && (item == 1 || item == 2 || item == 4 || item == 8),
                 "the data don't fill the box");
  return fields;
}

// --- shutdown and goodbye
// ---------------------------------------------------------------------------------------------------------
Message encode(const Shutdown& fields) {
  FlatBufferBuilder builder(256);
  auto reason = builder.CreateString(fields.reason);
  auto root = wire::CreateShutdown(builder, fields.exit_code, reason);
  return wire::seal(builder, root, MessageKind::kShutdown);
}

Shutdown decode_shutdown(const Message& message) {
  const auto& head = wire::verified<wire::Shutdown>(message, MessageKind::kShutdown);
  return {head.exit_code(), text_of(head.reason())};
}

Message encode_goodbye(int32_t node) {
  FlatBufferBuilder builder(64);
  auto root = wire::CreateGoodbye(builder, node);
  return wire::seal(builder, root, MessageKind::kGoodbye);
}

int32_t decode_goodbye(const Message& message) {
  const auto& head = wire::verified<wire::Goodbye>(message, MessageKind::kGoodbye);
  return checked_node(wire::Reader(message, MessageKind::kGoodbye), head.node());
}

// --- reset peak
// -------------------------------------------------------------------------------------------------------------------
Message encode_reset_peak() {
  FlatBufferBuilder builder(64);
  auto root = wire::CreateResetPeak(builder);
  return wire::seal(builder, root, MessageKind::kResetPeak);
}

void decode_reset_peak(const Message& message) { wire::verified<wire::ResetPeak>(message, MessageKind::kResetPeak); }

}  // namespace dtorch
