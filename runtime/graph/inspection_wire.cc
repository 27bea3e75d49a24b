// The wire form of questions to a node and its answers (inspection.h), and of what a device's memory holds. Pure
// functions, any thread. A timeline's events are the answer's payload: nodes are alike, so they travel as they lie.
#include "runtime/graph/inspection.h"
#include "runtime/graph/wire_internal.h"

namespace dtorch {

namespace wire {

flatbuffers::Offset<DeviceMemory> put(flatbuffers::FlatBufferBuilder& builder, const dtorch::DeviceMemory& memory) {
  std::vector<LiveTensor> structs;
  for (const dtorch::LiveTensor& tensor : memory.largest)
    structs.emplace_back(tensor.graph, tensor.slot, tensor.storage_bytes);
  const auto largest = builder.CreateVectorOfStructs(structs);
  return CreateDeviceMemory(builder, memory.device, memory.bytes_in_use, memory.peak_bytes, memory.num_tensors,
                            largest);
}

dtorch::DeviceMemory take_memory(Reader& reader, const DeviceMemory& table) {
  dtorch::DeviceMemory memory{table.device(), table.bytes_in_use(), table.peak_bytes(), table.num_tensors()};
  for (const LiveTensor& tensor : reader.items<LiveTensor>(table.largest())) {
    memory.largest.push_back({tensor.graph(), tensor.slot(), tensor.storage_bytes()});
    reader.require(tensor.storage_bytes() >= 0, "a tensor's bytes are negative");
  }
  for (int64_t figure : {memory.device, memory.bytes_in_use, memory.peak_bytes, memory.num_tensors})
    reader.require(figure >= 0, "a device's memory is negative");
  return memory;
}

}  // namespace wire

namespace {

using flatbuffers::FlatBufferBuilder;

template <class E, class U>
E checked(const wire::Reader& reader, U value, E last, const char* what) {
  reader.require(value <= static_cast<U>(last), what);
  return static_cast<E>(value);
}

template <class T>
size_t size_of_vector(const T* vector) {
  return vector == nullptr ? 0 : vector->size();
}

wire::DeviceStatus packed(const DeviceStatus& status) {
  return {status.device,      status.at.sequence,        status.waits_for.sequence,
          status.at.op_index, status.waits_for.op_index, static_cast<uint8_t>(status.activity)};
}

DeviceStatus unpacked(const wire::Reader& reader, const wire::DeviceStatus& status) {
  reader.require(status.device() >= 0, "its device number is negative");
  return {status.device(),
          checked(reader, status.activity(), Activity::kWaits, "a device does something unknown"),
          {status.sequence(), status.op_index()},
          {status.waits_for_sequence(), status.waits_for_op_index()}};
}

flatbuffers::Offset<wire::TransferStatus> put(FlatBufferBuilder& builder, const TransferStatus& transfer) {
  const auto waits_for = wire::put(builder, transfer.waits_for);
  return wire::CreateTransferStatus(builder, transfer.place.sequence, transfer.place.op_index, transfer.number,
                                    static_cast<uint8_t>(transfer.phase), waits_for);
}

TransferStatus take_transfer(wire::Reader& reader, const wire::TransferStatus& table) {
  return {{table.sequence(), table.op_index()},
          table.number(),
          checked(reader, table.phase(), TransferPhase::kSends, "a transfer is in an unknown phase"),
          reader.items<int64_t>(table.waits_for())};
}

flatbuffers::Offset<wire::DeviceProfile> put(FlatBufferBuilder& builder, const DeviceProfile& profile) {
  std::vector<wire::ProfileRow> structs;
  for (const ProfileRow& row : profile.rows)
    structs.emplace_back(row.graph, row.spec, row.calls, row.run_ns, row.wait_ns, row.bytes, row.moved_bytes);
  const auto rows = builder.CreateVectorOfStructs(structs);
  return wire::CreateDeviceProfile(builder, profile.device, profile.window_ns, rows);
}

DeviceProfile take_profile(wire::Reader& reader, const wire::DeviceProfile& table) {
  DeviceProfile profile{table.device(), table.window_ns()};
  reader.require(profile.device >= 0 && profile.window_ns >= 0, "a profile's device or time is negative");
  for (const wire::ProfileRow& row : reader.items<wire::ProfileRow>(table.rows())) {
    for (int64_t figure : {row.calls(), row.run_ns(), row.wait_ns(), row.bytes(), row.moved_bytes()})
      reader.require(figure >= 0, "a figure of a profile is negative");
    profile.rows.push_back(
        {row.graph(), row.spec(), row.calls(), row.run_ns(), row.wait_ns(), row.bytes(), row.moved_bytes()});
  }
  return profile;
}

// The events of all tracks, one after the other.
SharedBytes packed_events(const std::vector<TraceTrack>& tracks) {
  size_t num_events = 0;
  for (const TraceTrack& track : tracks) num_events += track.events.size();
  if (num_events == 0) return nullptr;
  auto bytes = std::make_shared<Bytes>(num_events * sizeof(TraceEvent));
  std::byte* at = bytes->data();
  for (const TraceTrack& track : tracks) {
    const size_t size = track.events.size() * sizeof(TraceEvent);
    if (size > 0) std::memcpy(at, track.events.data(), size);
    at += size;
  }
  return bytes;
}

void take_tracks(wire::Reader& reader, const wire::Answer& head, const SharedBytes& payload, Answer& fields) {
  const size_t payload_bytes = payload == nullptr ? 0 : payload->size();
  size_t at = 0;
  for (const wire::TraceTrack& track : reader.items<wire::TraceTrack>(head.tracks())) {
    reader.require(track.device() >= -1 && track.dropped() >= 0, "a track's device or count is negative");
    reader.require(track.num_events() <= (payload_bytes - at) / sizeof(TraceEvent), "its events are missing");
    TraceTrack& taken = fields.tracks.emplace_back();
    taken.device = track.device();
    taken.dropped = track.dropped();
    taken.events.resize(track.num_events());
    const size_t size = taken.events.size() * sizeof(TraceEvent);
    if (size > 0) std::memcpy(taken.events.data(), payload->data() + at, size);
    at += size;
    for (const TraceEvent& event : taken.events) {
      checked(reader, static_cast<uint32_t>(event.kind), TraceKind::kReceive, "an event is of an unknown kind");
      reader.require(event.begin_ns <= event.end_ns, "an event ends before it begins");
    }
  }
  reader.require(at == payload_bytes, "it has bytes that belong to no event");
}

}  // namespace

Message encode(const Inspect& fields) {
  FlatBufferBuilder builder(64);
  auto root = wire::CreateInspect(builder, fields.number, static_cast<uint8_t>(fields.aspect));
  return wire::seal(builder, root, MessageKind::kInspect);
}

Inspect decode_inspect(const Message& message) {
  const auto& head = wire::verified<wire::Inspect>(message, MessageKind::kInspect);
  const wire::Reader reader(message, MessageKind::kInspect);
  reader.require(head.aspect() >= 1, "it asks for nothing");
  return {head.number(), checked(reader, head.aspect(), Aspect::kTrace, "it asks for something unknown")};
}

Message encode(const Answer& fields) {
  FlatBufferBuilder builder(512);
  std::vector<wire::DeviceStatus> device_structs;
  for (const DeviceStatus& device : fields.devices) device_structs.push_back(packed(device));
  const auto devices = builder.CreateVectorOfStructs(device_structs);
  std::vector<flatbuffers::Offset<wire::TransferStatus>> transfer_tables;
  for (const TransferStatus& transfer : fields.transfers) transfer_tables.push_back(put(builder, transfer));
  const auto transfers = builder.CreateVector(transfer_tables);
  std::vector<flatbuffers::Offset<wire::DeviceMemory>> memory_tables;
  for (const DeviceMemory& memory : fields.memory) memory_tables.push_back(wire::put(builder, memory));
  const auto memory = builder.CreateVector(memory_tables);
  std::vector<flatbuffers::Offset<wire::DeviceProfile>> profile_tables;
  for (const DeviceProfile& profile : fields.profiles) profile_tables.push_back(put(builder, profile));
  const auto profiles = builder.CreateVector(profile_tables);
  std::vector<wire::TraceTrack> track_structs;
  for (const TraceTrack& track : fields.tracks)
    track_structs.emplace_back(track.device, track.dropped, track.events.size());
  const auto tracks = builder.CreateVectorOfStructs(track_structs);
  auto root = wire::CreateAnswer(builder, fields.epoch, fields.node, fields.number, fields.clock_ns, fields.machine,
                                 devices, transfers, fields.num_transfers, memory, profiles, tracks);
  return wire::seal(builder, root, MessageKind::kAnswer, packed_events(fields.tracks));
}

Answer decode_answer(const Message& message) {
  const auto& head = wire::verified<wire::Answer>(message, MessageKind::kAnswer);
  wire::Reader reader(message, MessageKind::kAnswer);
  reader.require(head.node() >= 0, "its node number is negative");
  Answer fields{.epoch = head.epoch(),
                .node = head.node(),
                .number = head.number(),
                .clock_ns = head.clock_ns(),
                .machine = head.machine()};
  for (const wire::DeviceStatus& device : reader.items<wire::DeviceStatus>(head.devices()))
    fields.devices.push_back(unpacked(reader, device));
  for (flatbuffers::uoffset_t i = 0; i < size_of_vector(head.transfers()); ++i)
    fields.transfers.push_back(take_transfer(reader, *head.transfers()->Get(i)));
  fields.num_transfers = head.num_transfers();
  reader.require(fields.num_transfers >= fields.transfers.size(), "it counts fewer transfers than it has");
  for (flatbuffers::uoffset_t i = 0; i < size_of_vector(head.memory()); ++i)
    fields.memory.push_back(wire::take_memory(reader, *head.memory()->Get(i)));
  for (flatbuffers::uoffset_t i = 0; i < size_of_vector(head.profiles()); ++i)
    fields.profiles.push_back(take_profile(reader, *head.profiles()->Get(i)));
  take_tracks(reader, head, message.payload, fields);
  return fields;
}

}  // namespace dtorch
