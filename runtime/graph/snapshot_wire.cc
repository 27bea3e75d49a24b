// Parts of snapshots on the wire (snapshot.h); the orders travel as pieces do (piece_wire.cc).
#include <cmath>

#include "runtime/graph/snapshot.h"
#include "runtime/graph/wire_internal.h"

namespace dtorch {

namespace {

using flatbuffers::FlatBufferBuilder;

constexpr int64_t kMaxLead = 64;

// -1 when they don't fit.
int64_t extent_bytes(const SnapshotPart& part) {
  const int64_t extent = extent_of(part.local_shape, part.strides);
  int64_t bytes = 0;
  return extent < 0 || __builtin_mul_overflow(extent, size_of(part.dtype), &bytes) ? -1 : bytes;
}

}  // namespace

int64_t extent_of(const Shape& local_shape, const Shape& strides) {
  int64_t extent = 1;
  for (int64_t dim = 0; dim < local_shape.ndim(); ++dim) {
    if (local_shape[dim] == 0) return 0;
    int64_t along = 0;
    if (strides[dim] < 0 || __builtin_mul_overflow(local_shape[dim] - 1, strides[dim], &along) ||
        __builtin_add_overflow(extent, along, &extent)) {
      return -1;
    }
  }
  return extent;
}

Message encode(const SnapshotPart& fields, SharedBytes payload) {
  FlatBufferBuilder builder(512);
  auto shape = wire::put(builder, fields.local_shape);
  auto strides = wire::put(builder, fields.strides);
  flatbuffers::Offset<wire::Poison> poison;
  if (fields.is_poisoned) {
    auto text = builder.CreateString(fields.poison);
    poison = wire::CreatePoison(builder, text, fields.poison_device, fields.poison_sequence, fields.poison_op_index);
  }
  auto root =
      wire::CreateSnapshotPart(builder, fields.snapshot, fields.owner, fields.device, fields.is_copy, fields.graph,
                               fields.slot, static_cast<uint8_t>(fields.dtype), shape, strides, fields.lead, poison);
  Message message = wire::seal(builder, root, MessageKind::kSnapshotPart, std::move(payload));
  message.epoch = fields.epoch;
  return message;
}

SnapshotPart decode_snapshot_part(const Message& message) {
  const auto& head = wire::verified<wire::SnapshotPart>(message, MessageKind::kSnapshotPart);
  wire::Reader reader(message, MessageKind::kSnapshotPart);
  reader.require(is_valid_dtype(head.dtype()), "it is of an unknown dtype");
  reader.require(head.owner() >= 0 && head.device() >= 0, "its device number is negative");
  reader.require(head.slot() <= kMaxOperand, "its operand number is out of range");
  SnapshotPart fields{.epoch = message.epoch,
                      .snapshot = head.snapshot(),
                      .owner = head.owner(),
                      .device = head.device(),
                      .is_copy = head.is_copy(),
                      .graph = head.graph(),
                      .slot = head.slot(),
                      .dtype = static_cast<DType>(head.dtype()),
                      .local_shape = reader.sizes(head.shape(), "its part"),
                      .strides = reader.sizes(head.strides(), "its part's strides"),
                      .lead = head.lead()};
  if (const wire::Poison* poison = head.poison()) {
    fields.is_poisoned = true;
    if (poison->message() != nullptr) fields.poison = poison->message()->str();
    fields.poison_device = poison->device();
    fields.poison_sequence = poison->sequence();
    fields.poison_op_index = poison->op_index();
    return fields;
  }
  reader.require(fields.local_shape.ndim() == fields.strides.ndim(), "its shape and strides differ in dims");
  reader.require(fields.lead >= 0 && fields.lead < kMaxLead && fields.lead % size_of(fields.dtype) == 0,
                 "its first element is out of place");
  const int64_t bytes = extent_bytes(fields);
  const auto got = message.payload ? static_cast<int64_t>(message.payload->size()) : 0;
  reader.require(bytes >= 0 && got == (bytes == 0 ? 0 : bytes + fields.lead), "the data don't fill the part");
  return fields;
}

Message encode(const SnapshotStored& fields) {
  FlatBufferBuilder builder(128);
  const auto problem = fields.problem.empty() ? 0 : builder.CreateString(fields.problem);
  auto root =
      wire::CreateSnapshotStored(builder, fields.node, fields.snapshot, fields.own_bytes, fields.copy_bytes, problem);
  Message message = wire::seal(builder, root, MessageKind::kSnapshotStored);
  message.epoch = fields.epoch;
  return message;
}

SnapshotStored decode_snapshot_stored(const Message& message) {
  const auto& head = wire::verified<wire::SnapshotStored>(message, MessageKind::kSnapshotStored);
  wire::Reader reader(message, MessageKind::kSnapshotStored);
  reader.require(head.node() >= 0, "its node number is negative");
  reader.require(head.own_bytes() >= 0 && head.copy_bytes() >= 0, "its bytes are negative");
  return {message.epoch,    head.node(),       head.snapshot(),
          head.own_bytes(), head.copy_bytes(), head.problem() != nullptr ? head.problem()->str() : ""};
}

}  // namespace dtorch
