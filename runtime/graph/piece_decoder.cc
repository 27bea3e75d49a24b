// Pieces and templates off the wire: the other half of piece_wire.cc.
#include <algorithm>
#include <span>
#include <utility>

#include "runtime/graph/compute_streams.h"
#include "runtime/graph/fused_runs.h"
#include "runtime/graph/snapshot.h"
#include "runtime/graph/templates.h"
#include "runtime/graph/transfer_buckets.h"
#include "runtime/graph/wire_internal.h"

namespace dtorch {

namespace {

constexpr MessageKind kKind = MessageKind::kPiece;
// Counts of a spec that isn't defined; real counts are smaller.
constexpr uint16_t kUndefined = 0xFFFF;
constexpr size_t kMaxGraphs = 65536;
// Spec numbers are dense but for specs whose calls were all dropped; a jump beyond this is damage.
constexpr size_t kMaxSpecGap = 65536;
constexpr size_t kMaxMeshes = size_t{1} << 20;
constexpr size_t kMaxNameBytes = 256;  // as in piece_wire.cc

using SpecCounts = std::vector<std::pair<uint16_t, uint16_t>>;

DeviceMesh take_mesh(wire::Reader& reader, const wire::Mesh& mesh, int64_t num_devices) {
  const Shape shape = reader.sizes(mesh.shape(), "a mesh");
  std::vector<int64_t> devices = reader.items<int64_t>(mesh.devices());
  const std::vector<uint16_t> lengths = reader.items<uint16_t>(mesh.name_lengths());
  const std::string all_names = reader.bytes(mesh.names());
  reader.require(shape.size() <= kMaxAxes, "a mesh has more than 6 axes");
  int64_t product = 1;
  for (int64_t size : shape) reader.require(!__builtin_mul_overflow(product, size, &product), "a mesh is too large");
  reader.require(product == static_cast<int64_t>(devices.size()), "a mesh's shape doesn't fit its devices");
  for (int64_t device : devices) reader.require(device >= 0 && device < num_devices, "a mesh has an unknown device");
  reader.require(lengths.empty() || lengths.size() == static_cast<size_t>(shape.size()),
                 "a mesh's names don't fit its axes");
  std::vector<std::string> names;
  size_t at = 0;
  for (uint16_t length : lengths) {
    reader.require(length <= kMaxNameBytes && length <= all_names.size() - at, "a mesh's axis name is too long");
    names.push_back(all_names.substr(at, length));
    at += length;
  }
  reader.require(at == all_names.size(), "a mesh's names don't fit its axes");
  return DeviceMesh(reader.bytes(mesh.kind()), shape, std::move(devices), std::move(names));
}

Placement take_placement(const wire::Reader& reader, const wire::Placement& p, int64_t ndim) {
  reader.require(p.kind() <= static_cast<uint8_t>(Placement::Kind::kPartial), "a placement is of an unknown kind");
  reader.require(p.reduce() <= static_cast<uint8_t>(ReduceOp::kMin), "a placement has an unknown reduction");
  const Placement result{static_cast<Placement::Kind>(p.kind()), static_cast<ReduceOp>(p.reduce()), p.dim()};
  reader.require(result.is_partial() || result.reduce == ReduceOp::kSum, "a placement has a reduction it can't have");
  reader.require(result.is_shard() ? p.dim() >= 0 && p.dim() < ndim : p.dim() == 0,
                 "a placement's dim is out of range");
  return result;
}

// An array in which each definition's part follows that of the one before.
template <class T>
class Parts {
 public:
  Parts(const wire::Reader& reader, std::vector<T> items) : reader_(reader), items_(std::move(items)) {}
  std::span<const T> next(size_t count) {
    reader_.require(count <= items_.size() - taken_, "a definition lacks a part");
    return std::span(items_).subspan(std::exchange(taken_, taken_ + count), count);
  }
  void require_end() const { reader_.require(taken_ == items_.size(), "parts belong to no definition"); }

 private:
  const wire::Reader& reader_;
  const std::vector<T> items_;
  size_t taken_ = 0;
};

// Adds the head's meshes to those defined before.
void take_meshes(wire::Reader& reader, const wire::Piece& head, int64_t num_devices, std::vector<DeviceMesh>& meshes) {
  const size_t num_meshes = head.meshes() ? head.meshes()->size() : 0;
  reader.require(num_meshes == 0 || head.first_mesh() == meshes.size(), "its meshes don't follow those defined before");
  reader.require(meshes.size() + num_meshes <= kMaxMeshes, "there are too many meshes");
  for (size_t i = 0; i < num_meshes; ++i)
    meshes.push_back(take_mesh(reader, *head.meshes()->Get(static_cast<uint32_t>(i)), num_devices));
}

std::vector<const TensorMeta*> take_metas(wire::Reader& reader, const wire::Piece& head,
                                          const std::vector<DeviceMesh>& meshes) {
  const std::vector<wire::Meta> metas = reader.items<wire::Meta>(head.metas());
  Parts<int64_t> sizes(reader, reader.items<int64_t>(head.sizes()));
  Parts<wire::Placement> placements(reader, reader.items<wire::Placement>(head.placements()));
  Parts<int8_t> shard_orders(reader, reader.items<int8_t>(head.shard_orders()));
  std::vector<const TensorMeta*> result;
  result.reserve(metas.size());
  for (const wire::Meta& meta : metas) {
    reader.require(is_valid_dtype(meta.dtype()), "an operand is of an unknown dtype");
    const auto dtype = static_cast<DType>(meta.dtype());
    const Shape shape = reader.shape_of(sizes.next(meta.num_dims()), "an operand");
    int64_t bytes = size_of(dtype);
    for (int64_t size : shape) {
      reader.require(!__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes), "an operand is too large");
    }
    reader.require(meta.mesh() < meshes.size(), "an operand is on an unknown mesh");
    const DeviceMesh& mesh = meshes[meta.mesh()];
    Placements placed;
    for (const wire::Placement& p : placements.next(static_cast<size_t>(mesh.num_axes())))
      placed.push_back(take_placement(reader, p, shape.ndim()));
    reader.require(meta.num_ordered() <= mesh.num_axes(), "an operand's shard order is too long");
    AxisList order;
    for (int8_t axis : shard_orders.next(meta.num_ordered())) {
      reader.require(axis >= 0 && axis < mesh.num_axes(), "an operand's shard order has an unknown axis");
      reader.require(std::find(order.begin(), order.end(), axis) == order.end(),
                     "an operand's shard order repeats an axis");
      order.push_back(axis);
    }
    result.push_back(intern_meta(shape, dtype, Layout(mesh, placed, shape.ndim(), order)));
  }
  sizes.require_end();
  placements.require_end();
  shard_orders.require_end();
  return result;
}

std::vector<const TensorMeta*> take_operands(const wire::Reader& reader, std::span<const uint32_t> numbers,
                                             const std::vector<const TensorMeta*>& metas) {
  std::vector<const TensorMeta*> result;
  result.reserve(numbers.size());
  for (uint32_t number : numbers) {
    reader.require(number < metas.size(), "a spec has an operand without metadata");
    result.push_back(metas[number]);
  }
  return result;
}

// Puts the specs into the table of their Graph and at the end of `specs`, which holds those in the table also when
// another one is refused.
void take_specs(wire::Reader& reader, const wire::Piece& head, const std::vector<const TensorMeta*>& metas,
                uint16_t num_ops, SpecCounts& known, std::vector<OperatorSpec>& specs) {
  const std::vector<wire::Spec> listed = reader.items<wire::Spec>(head.specs());
  Parts<uint32_t> operands(reader, reader.items<uint32_t>(head.spec_operands()));
  Parts<char> attributes(reader, reader.items<char>(head.attributes()));
  specs.reserve(listed.size());
  for (const wire::Spec& spec : listed) {
    reader.require(spec.op() < num_ops, "a spec is of an unknown operator");
    reader.require(spec.num_inputs() < kUndefined && spec.num_outputs() < kUndefined, "a spec has too many operands");
    const std::span<const char> encoded = attributes.next(spec.attribute_bytes());
    OperatorSpec result{.id = spec.id(),
                        .op = spec.op(),
                        .attributes = std::string(encoded.begin(), encoded.end()),
                        .inputs = take_operands(reader, operands.next(spec.num_inputs()), metas),
                        .outputs = take_operands(reader, operands.next(spec.num_outputs()), metas)};
    reader.require(result.id < known.size() + kMaxSpecGap && result.id < kAliasSpec, "a spec's number is out of range");
    if (result.id >= known.size()) known.resize(size_t{result.id} + 1, {kUndefined, kUndefined});
    reader.require(known[result.id].first == kUndefined, "a spec is defined twice");
    known[result.id] = {spec.num_inputs(), spec.num_outputs()};
    specs.push_back(std::move(result));
  }
  operands.require_end();
  attributes.require_end();
}

// The hot loop: verifies every call and gives it its place in the flat arrays.
void take_calls(wire::Reader& reader, const wire::Piece& head, const SpecCounts& known, LogicalGraph& graph) {
  const std::vector<wire::Call> calls = reader.items<wire::Call>(head.calls());
  graph.operands = reader.items<OperandId>(head.operands());
  graph.scalars = reader.items<Scalar>(head.scalars());
  graph.operators.resize(calls.size());
  size_t operand = 0;
  size_t scalar = 0;
  bool in_run = false;
  for (size_t i = 0; i < calls.size(); ++i) {
    const wire::Call& call = calls[i];
    const Operator op{call.spec(),
                      static_cast<uint32_t>(operand),
                      static_cast<uint32_t>(scalar),
                      call.num_inputs(),
                      call.num_outputs(),
                      call.num_scalars(),
                      call.flags()};
    const auto fail = [&](const char* what) { reader.fail("call " + std::to_string(i) + " " + what); };
    if (op.spec == kReleaseSpec) {
      if (op.num_outputs != 0 || op.num_scalars != 0) fail("is a release with outputs or scalars");
    } else if (op.spec == kAliasSpec) {
      if (op.num_outputs != op.num_inputs || op.num_scalars != 0) fail("is an alias without an output for each input");
    } else {
      if (op.spec >= known.size() || known[op.spec].first == kUndefined) fail("is of an undefined spec");
      if (known[op.spec] != std::pair(op.num_inputs, op.num_outputs)) fail("doesn't have the operands of its spec");
    }
    if ((op.flags & ~(kFusedWithNext | kSentWithNext | kComputeStreamMask)) != 0) fail("has unknown flags");
    if (in_run && stream_of(op) != stream_of(graph.operators[i - 1])) fail("is of another stream than its run");
    if (in_run && (!op.is_call() || op.num_outputs != 1)) fail("can't be fused with the call before it");
    if (is_sent_with_next(op) && i + 1 == calls.size()) fail("is sent with nothing");
    in_run = is_fused_with_next(op);
    if (in_run && (!op.is_call() || op.num_outputs != 1 || i + 1 == calls.size())) fail("is fused with nothing");
    const size_t first_output = operand + op.num_inputs;
    operand = first_output + op.num_outputs;
    scalar += op.num_scalars;
    if (operand > graph.operands.size() || scalar > graph.scalars.size()) fail("lacks operands or scalars");
    for (size_t k = first_output; k < operand; ++k) {
      if (graph.operands[k] > kMaxOperand) fail("has an output number that is out of range");
    }
    graph.operators[i] = op;
  }
  if (operand != graph.operands.size() || scalar != graph.scalars.size())
    reader.fail("operands or scalars belong to no call");
}

}  // namespace

// Takes definitions and calls of a head; what it defines takes effect at once, and is taken back when it isn't kept.
class PieceDecoder::Reading {
 public:
  Reading(PieceDecoder& decoder, const wire::Piece& head, wire::Reader& reader)
      : decoder_(decoder),
        head_(head),
        reader_(reader),
        new_graph_(decoder.specs_.find(head.graph()) == decoder.specs_.end()),
        old_meshes_(decoder.meshes_.size()) {
    reader.require(!new_graph_ || decoder.specs_.size() < kMaxGraphs, "there are too many Graphs");
    known_ = &decoder.specs_[head.graph()];
    old_specs_ = known_->size();
  }
  ~Reading() {
    if (kept_) return;
    decoder_.meshes_.resize(old_meshes_);
    for (const OperatorSpec& spec : new_specs) (*known_)[spec.id] = {kUndefined, kUndefined};
    known_->resize(old_specs_);
    if (new_graph_) decoder_.specs_.erase(head_.graph());
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  void take() {
    try {
      take_definitions();
    } catch (const UserError& error) {  // from the constructors of meshes and layouts
      reader_.fail(error.what());
    }
    take_calls(reader_, head_, *known_, calls);
  }
  void keep() { kept_ = true; }

  std::vector<OperatorSpec> new_specs;
  LogicalGraph calls;

 private:
  void take_definitions() {
    take_meshes(reader_, head_, decoder_.num_devices_, decoder_.meshes_);
    const std::vector<const TensorMeta*> metas = take_metas(reader_, head_, decoder_.meshes_);
    take_specs(reader_, head_, metas, decoder_.num_ops_, *known_, new_specs);
  }

  PieceDecoder& decoder_;
  const wire::Piece& head_;
  wire::Reader& reader_;
  const bool new_graph_;
  const size_t old_meshes_;
  SpecCounts* known_ = nullptr;
  size_t old_specs_ = 0;
  bool kept_ = false;
};

Piece PieceDecoder::decode(const Message& message) {
  const auto& head = wire::verified<wire::Piece>(message, kKind);
  wire::Reader reader(message, kKind);
  const auto known = templates_.find(head.graph());
  reader.require(known == templates_.end() || known->second->current == TemplateBody::kNever,
                 "it comes in the middle of a template");
  Reading reading(*this, head, reader);
  reading.take();
  reading.keep();

  Piece piece;
  piece.epoch = message.epoch;
  piece.sequence = head.sequence();
  piece.graph = head.graph();
  piece.first_transfer = head.first_transfer();
  piece.wants_ack_now = head.wants_ack_now();
  piece.wants_statistics = head.wants_statistics();
  piece.closes_graph = head.closes_graph();
  piece.new_specs = std::move(reading.new_specs);
  piece.graph_part = std::move(reading.calls);
  if (piece.closes_graph) {
    specs_.erase(piece.graph);
    templates_.erase(piece.graph);
  }
  return piece;
}

TemplateDefinition PieceDecoder::decode_template(const Message& message) {
  constexpr MessageKind kTemplateKind = MessageKind::kTemplate;
  const auto& head = wire::verified<wire::Template>(message, kTemplateKind);
  wire::Reader reader(message, kTemplateKind);
  reader.require(head.calls() != nullptr, "it has no calls");
  reader.require(head.id() < kMaxTemplates, "its number is out of range");
  const auto known = templates_.find(head.calls()->graph());
  reader.require(known == templates_.end() || known->second->current != head.id(), "it is being replayed");
  Reading reading(*this, *head.calls(), reader);
  reading.take();

  TemplateDefinition definition;
  definition.epoch = message.epoch;
  definition.graph = head.calls()->graph();
  definition.id = head.id();
  definition.body = std::make_shared<const TemplateBody>(std::move(reading.calls), head.num_live_ins());
  definition.new_specs = std::move(reading.new_specs);
  definition.varying = reader.items<uint32_t>(head.varying());
  VaryingScalars varying;
  for (uint32_t scalar : definition.varying) {
    const bool is_next = varying.all().empty() || scalar > varying.all().back();
    reader.require(is_next && scalar < definition.body->calls().scalars.size(),
                   "its varying scalars aren't its scalars in order");
    varying.add(scalar);
  }
  std::shared_ptr<KnownTemplates>& templates = templates_[definition.graph];
  if (templates == nullptr) templates = std::make_shared<KnownTemplates>();
  if (templates->by_id.size() <= definition.id) templates->by_id.resize(size_t{definition.id} + 1);
  templates->by_id[definition.id] = {definition.body, varying};
  reading.keep();
  return definition;
}

Replay PieceDecoder::decode_replay(const Message& message) {
  const auto known = templates_.find(graph_of_replay(message));
  if (known == templates_.end()) wire::fail(MessageKind::kReplay, "its Graph has no templates");
  return take_replay(message, *known->second);
}

SnapshotOrder PieceDecoder::decode_snapshot(const Message& message) {
  constexpr MessageKind kSnapshotKind = MessageKind::kSnapshot;
  const auto& head = wire::verified<wire::Snapshot>(message, kSnapshotKind);
  wire::Reader reader(message, kSnapshotKind);
  reader.require(head.definitions() != nullptr, "it has no definitions");
  reader.require(head.action() >= static_cast<uint8_t>(SnapshotAction::kTake) &&
                     head.action() <= static_cast<uint8_t>(SnapshotAction::kDrop),
                 "it is of an unknown kind");
  SnapshotOrder order{
      .epoch = message.epoch, .snapshot = head.snapshot(), .action = static_cast<SnapshotAction>(head.action())};
  std::vector<DeviceMesh> meshes = meshes_;
  std::vector<const TensorMeta*> metas;
  try {
    take_meshes(reader, *head.definitions(), num_devices_, meshes);
    metas = take_metas(reader, *head.definitions(), meshes);
  } catch (const UserError& error) {  // from the constructors of meshes and layouts
    reader.fail(error.what());
  }
  const std::vector<uint32_t> graphs = reader.items<uint32_t>(head.graphs());
  const std::vector<uint32_t> slots = reader.items<uint32_t>(head.slots());
  const std::vector<uint32_t> numbers = reader.items<uint32_t>(head.metas());
  const std::vector<uint8_t> ragged = reader.items<uint8_t>(head.ragged());
  reader.require(slots.size() == graphs.size() && numbers.size() == graphs.size() && ragged.size() == graphs.size(),
                 "its values don't fit each other");
  for (size_t i = 0; i < graphs.size(); ++i) {
    reader.require(slots[i] <= kMaxOperand, "an operand number is out of range");
    reader.require(numbers[i] < metas.size(), "a value has no metadata");
    reader.require(i == 0 || std::pair(graphs[i - 1], slots[i - 1]) < std::pair(graphs[i], slots[i]),
                   "its values aren't in order");
    order.values.push_back({graphs[i], slots[i], metas[numbers[i]], ragged[i] != 0});
  }
  order.places.node_of_device = reader.items<int32_t>(head.node_of_device());
  order.places.buddies = reader.items<int32_t>(head.buddies());
  order.places.num_copies = head.num_copies();
  reader.require(order.places.num_copies >= 1, "nobody keeps copies");
  reader.require(order.places.buddies.size() % static_cast<size_t>(order.places.num_copies) == 0,
                 "its nodes have different numbers of buddies");
  order.done_effects = reader.items<uint64_t>(head.done_effects());
  const auto num_nodes = order.places.num_nodes();
  reader.require(order.places.node_of_device.size() == (num_nodes == 0 ? 0 : static_cast<size_t>(num_devices_)),
                 "it doesn't have a place for every device");
  const bool is_of_places = order.action == SnapshotAction::kStore || order.action == SnapshotAction::kRestore;
  reader.require(num_nodes != 0 || !is_of_places, "it doesn't say where values are kept");
  for (int32_t node : order.places.node_of_device)
    reader.require(node >= 0 && node < num_nodes, "a device is on an unknown node");
  for (int32_t node : order.places.buddies)
    reader.require(node >= kNoBuddy && node < num_nodes, "a buddy is an unknown node");
  meshes_ = std::move(meshes);
  return order;
}

}  // namespace dtorch
