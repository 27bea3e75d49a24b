// The wire form of control messages. Pure functions, any thread.
//
//   packed    := kind:u8 has_payload:u8 zero:u8[6] head_bytes:u64 head payload      (pack / unpack, little-endian)
//   head      := a FlatBuffer of messages.fbs, file identifier "DT" version letter  (version '1'; letter 'a' + kind)
//   payload   := bytes of one tensor, row-major, without a header                   (kFeed, kReadData)
//
//   piece     := epoch sequence graph first_transfer wants_ack_now definitions calls
//   definitions := mesh* meta* spec*     a mesh is numbered over the life of the encoder, a meta within its piece, a
//   spec per Graph calls     := call* operand* scalar*  flat arrays. A call is 12 bytes: spec, counts of inputs,
//   outputs and scalars, flags.
//                Its operands (inputs, then outputs) and scalars follow those of the call before it, so that they need
//                no offsets and can't overlap. 4 bytes an operand, 8 a scalar.
//
// A reader trusts nothing. FlatBuffers' verifier checks offsets and sizes; decode_* check what the numbers mean and
// throw DecodeError. Work and memory of a decode are proportional to the message's length.
#include <cmath>

#include "runtime/graph/wire_internal.h"

namespace dtorch {

namespace wire {

namespace {

constexpr char kVersion = '1';

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
  }
  return "unknown";
}

bool is_kind(uint8_t code) {
  return code >= static_cast<uint8_t>(MessageKind::kHello) && code <= static_cast<uint8_t>(MessageKind::kResetPeak);
}

// Four letters and the end.
void make_identifier(MessageKind kind, char* out) {
  out[0] = 'D';
  out[1] = 'T';
  out[2] = kVersion;
  out[3] = static_cast<char>('a' + static_cast<int>(kind));
  out[4] = '\0';
}

}  // namespace

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
  const std::vector<int64_t> values = items<int64_t>(vector);
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
  auto root = wire::CreateConfig(builder, fields.epoch, nodes, slots, fields.num_nodes, fields.check_metadata,
                                 fields.ordered_reductions, fields.threads_per_device, fields.deadline_s);
  return wire::seal(builder, root, MessageKind::kConfig);
}

Config decode_config(const Message& message) {
  const auto& head = wire::verified<wire::Config>(message, MessageKind::kConfig);
  wire::Reader reader(message, MessageKind::kConfig);
  Config fields;
  fields.epoch = head.epoch();
  fields.node_of_device = reader.items<int32_t>(head.node_of_device());
  fields.slot_of_device = reader.items<int32_t>(head.slot_of_device());
  fields.num_nodes = head.num_nodes();
  fields.check_metadata = head.check_metadata();
  fields.ordered_reductions = head.ordered_reductions();
  fields.threads_per_device = head.threads_per_device();
  fields.deadline_s = head.deadline_s();
  reader.require(fields.num_nodes >= 1, "it has no node");
  reader.require(fields.node_of_device.size() == fields.slot_of_device.size(),
                 "it binds devices to nodes and slots unevenly");
  for (int32_t node : fields.node_of_device)
    reader.require(node >= 0 && node < fields.num_nodes, "a device is on an unknown node");
  const auto num_devices = static_cast<int64_t>(fields.slot_of_device.size());
  for (int32_t slot : fields.slot_of_device)
    reader.require(slot >= 0 && slot < num_devices, "a device is in an unknown slot");
  reader.require(fields.threads_per_device >= 1 && fields.threads_per_device <= 4096,
                 "its threads per device are outside [1, 4096]");
  reader.require(std::isfinite(fields.deadline_s) && fields.deadline_s >= 0, "its deadline is no length of time");
  return fields;
}

// --- feed
// -------------------------------------------------------------------------------------------------------------------------
Message encode(const Feed& fields, SharedBytes payload) {
  FlatBufferBuilder builder(128);
  auto root = wire::CreateFeed(builder, fields.epoch, fields.feed, fields.num_uses);
  return wire::seal(builder, root, MessageKind::kFeed, std::move(payload));
}

Feed decode_feed(const Message& message) {
  const auto& head = wire::verified<wire::Feed>(message, MessageKind::kFeed);
  if (head.num_uses() == 0) wire::fail(MessageKind::kFeed, "it has no use");
  return {head.epoch(), head.feed(), head.num_uses()};
}

// --- ack
// --------------------------------------------------------------------------------------------------------------------------
Message encode(const Ack& fields) {
  FlatBufferBuilder builder(256 + fields.sequences.size() * sizeof(Sequence));
  auto sequences = wire::put(builder, fields.sequences);
  auto in_use = wire::put(builder, fields.device_bytes_in_use);
  auto peaks = wire::put(builder, fields.device_peak_bytes);
  auto root = wire::CreateAck(builder, fields.epoch, fields.node, sequences, fields.bytes_in_use, fields.peak_bytes,
                              fields.kernels_run, fields.data_bytes_sent, fields.data_messages_sent, in_use, peaks);
  return wire::seal(builder, root, MessageKind::kAck);
}

Ack decode_ack(const Message& message) {
  const auto& head = wire::verified<wire::Ack>(message, MessageKind::kAck);
  wire::Reader reader(message, MessageKind::kAck);
  Ack fields;
  fields.epoch = head.epoch();
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
  return fields;
}

// --- error
// ------------------------------------------------------------------------------------------------------------------------
Message encode(const ErrorReport& fields) {
  FlatBufferBuilder builder(512);
  auto text = builder.CreateString(fields.message);
  auto root = wire::CreateErrorReport(builder, fields.epoch, fields.node, fields.device, fields.sequence,
                                      fields.op_index, text);
  return wire::seal(builder, root, MessageKind::kError);
}

ErrorReport decode_error(const Message& message) {
  const auto& head = wire::verified<wire::ErrorReport>(message, MessageKind::kError);
  const wire::Reader reader(message, MessageKind::kError);
  reader.require(head.device() >= -1, "its device number is negative");
  return {head.epoch(),           checked_node(reader, head.node()), head.device(), head.sequence(), head.op_index(),
          text_of(head.message())};
}

// --- read data
// --------------------------------------------------------------------------------------------------------------------
Message encode(const ReadData& fields, SharedBytes payload) {
  FlatBufferBuilder builder(256);
  auto offset = wire::put(builder, fields.box.offset);
  auto size = wire::put(builder, fields.box.size);
  auto root = wire::CreateReadData(builder, fields.epoch, fields.node, fields.read, offset, size);
  return wire::seal(builder, root, MessageKind::kReadData, std::move(payload));
}

ReadData decode_read_data(const Message& message) {
  const auto& head = wire::verified<wire::ReadData>(message, MessageKind::kReadData);
  wire::Reader reader(message, MessageKind::kReadData);
  ReadData fields{head.epoch(), checked_node(reader, head.node()), head.read(), {}};
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

// --- packed form
// ------------------------------------------------------------------------------------------------------------------
namespace {

constexpr size_t kPackedHeader = 16;

SharedBytes copy_bytes(std::span<const std::byte> bytes) {
  return std::make_shared<const Bytes>(bytes.begin(), bytes.end());
}

}  // namespace

Bytes pack(const Message& message) {
  const size_t head_bytes = message.head ? message.head->size() : 0;
  Bytes bytes(kPackedHeader);
  bytes.reserve(kPackedHeader + head_bytes + (message.payload ? message.payload->size() : 0));
  bytes[0] = static_cast<std::byte>(message.kind);
  bytes[1] = static_cast<std::byte>(message.payload ? 1 : 0);
  const uint64_t length = head_bytes;
  std::memcpy(bytes.data() + 8, &length, sizeof length);
  if (message.head) bytes.insert(bytes.end(), message.head->begin(), message.head->end());
  if (message.payload) bytes.insert(bytes.end(), message.payload->begin(), message.payload->end());
  return bytes;
}

Message unpack(std::span<const std::byte> bytes) {
  if (bytes.size() < kPackedHeader) throw DecodeError("a packed control message is too short");
  if (!wire::is_kind(std::to_integer<uint8_t>(bytes[0])))
    throw DecodeError("a packed control message is of an unknown kind");
  bool clean = bytes[1] <= std::byte{1};
  for (size_t i = 2; i < 8; ++i) clean = clean && bytes[i] == std::byte{0};
  uint64_t head_bytes = 0;
  std::memcpy(&head_bytes, bytes.data() + 8, sizeof head_bytes);
  const size_t rest = bytes.size() - kPackedHeader;
  const bool has_payload = bytes[1] == std::byte{1};
  if (!clean || head_bytes > rest || (!has_payload && head_bytes != rest))
    throw DecodeError("a packed control message is damaged");
  Message message{static_cast<MessageKind>(bytes[0]), copy_bytes(bytes.subspan(kPackedHeader, head_bytes)), nullptr};
  if (has_payload) message.payload = copy_bytes(bytes.subspan(kPackedHeader + head_bytes));
  return message;
}

}  // namespace dtorch
