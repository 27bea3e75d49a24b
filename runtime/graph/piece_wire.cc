// Pieces and templates onto the wire; the grammar stands at the top of wire.cc. Encoding and decoding
// (piece_decoder.cc) take one pass over the calls and copy operands and scalars as they are; everything else happens
// once a definition.
#include "runtime/graph/snapshot.h"
#include "runtime/graph/templates.h"
#include "runtime/graph/wire_internal.h"

namespace dtorch {

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr MessageKind kKind = MessageKind::kPiece;
constexpr size_t kMaxNameBytes = 256;  // as in piece_decoder.cc

static_assert(sizeof(Scalar) == sizeof(uint64_t) && sizeof(wire::Call) == 12);

Offset<wire::Mesh> put_mesh(FlatBufferBuilder& builder, const MeshData& mesh) {
  std::string names;
  std::vector<uint16_t> name_lengths;
  for (const std::string& name : mesh.names) {
    DTORCH_CHECK(name.size() <= kMaxNameBytes, "an axis name is longer than 256 bytes");
    names += name;
    name_lengths.push_back(static_cast<uint16_t>(name.size()));
  }
  auto kind = builder.CreateString(mesh.kind);
  auto shape = wire::put(builder, mesh.shape);
  auto devices = wire::put(builder, mesh.devices);
  auto lengths = wire::put(builder, name_lengths);
  return wire::CreateMesh(builder, kind, shape, devices, lengths, wire::put_bytes(builder, names));
}

Offset<wire::Meta> put_meta(FlatBufferBuilder& builder, const TensorMeta& meta, uint32_t mesh) {
  std::vector<wire::Placement> placements;
  for (const Placement& p : meta.layout.placements()) {
    placements.emplace_back(static_cast<uint8_t>(p.kind), static_cast<uint8_t>(p.reduce), static_cast<int16_t>(p.dim));
  }
  const AxisList& order = meta.layout.shard_order();
  auto shape = wire::put(builder, meta.global_shape);
  auto placed = builder.CreateVectorOfStructs(placements.data(), placements.size());
  auto ordered = wire::put(builder, order.data(), static_cast<size_t>(order.size()));
  return wire::CreateMeta(builder, shape, static_cast<uint8_t>(meta.dtype), mesh, placed, ordered);
}

// Collects the definitions of a piece in order of first use.
class Definitions {
 public:
  Definitions(FlatBufferBuilder& builder, std::unordered_map<const MeshData*, uint32_t>& mesh_ids)
      : builder_(builder), mesh_ids_(mesh_ids), first_mesh_(static_cast<uint32_t>(mesh_ids.size())) {}

  void add(const OperatorSpec& spec) {
    auto attributes = wire::put_bytes(builder_, spec.attributes);
    auto inputs = metas_of(spec.inputs);
    auto outputs = metas_of(spec.outputs);
    specs_.push_back(wire::CreateSpec(builder_, spec.id, spec.op, attributes, inputs, outputs));
  }
  // Meshes that the reader doesn't know though this encoder does.
  void define_again(const std::vector<const MeshData*>& meshes) {
    first_mesh_ = 0;
    for (const MeshData* mesh : meshes) meshes_.push_back(put_mesh(builder_, *mesh));
  }
  uint32_t number_of(const TensorMeta* meta) {
    DTORCH_CHECK(meta != nullptr && meta->layout && meta->layout.mesh(), "an operand's metadata are incomplete");
    auto [entry, is_new] = meta_numbers_.try_emplace(meta, static_cast<uint32_t>(metas_.size()));
    if (is_new) metas_.push_back(put_meta(builder_, *meta, number_of(meta->layout.mesh().data())));
    return entry->second;
  }
  uint32_t first_mesh() const { return first_mesh_; }
  auto meshes() { return put_all(meshes_); }
  auto metas() { return put_all(metas_); }
  auto specs() { return put_all(specs_); }

 private:
  Offset<flatbuffers::Vector<uint32_t>> metas_of(const std::vector<const TensorMeta*>& metas) {
    DTORCH_CHECK(metas.size() < 0xFFFF, "an operator has too many operands");
    std::vector<uint32_t> numbers;
    numbers.reserve(metas.size());
    for (const TensorMeta* meta : metas) numbers.push_back(number_of(meta));
    return wire::put(builder_, numbers);
  }
  uint32_t number_of(const MeshData* mesh) {
    auto [entry, is_new] = mesh_ids_.try_emplace(mesh, static_cast<uint32_t>(mesh_ids_.size()));
    if (is_new) meshes_.push_back(put_mesh(builder_, *mesh));
    return entry->second;
  }
  template <class T>
  Offset<flatbuffers::Vector<Offset<T>>> put_all(const std::vector<Offset<T>>& tables) {
    return tables.empty() ? 0 : builder_.CreateVector(tables.data(), tables.size());
  }

  FlatBufferBuilder& builder_;
  std::unordered_map<const MeshData*, uint32_t>& mesh_ids_;
  uint32_t first_mesh_;
  std::unordered_map<const TensorMeta*, uint32_t> meta_numbers_;
  std::vector<Offset<wire::Mesh>> meshes_;
  std::vector<Offset<wire::Meta>> metas_;
  std::vector<Offset<wire::Spec>> specs_;
};

// The operands and scalars of a graph whose operators don't lie in order (after a pass), put in order.
LogicalGraph in_order(const LogicalGraph& graph) {
  LogicalGraph result;
  for (const Operator& op : graph.operators) {
    const size_t num_operands = size_t{op.num_inputs} + op.num_outputs;
    DTORCH_CHECK(op.first_operand + num_operands <= graph.operands.size(), "operands out of range");
    DTORCH_CHECK(op.num_scalars == 0 || size_t{op.first_scalar} + op.num_scalars <= graph.scalars.size(),
                 "scalars out of range");
    const OperandId* operands = graph.operands.data() + op.first_operand;
    result.operands.insert(result.operands.end(), operands, operands + num_operands);
    if (op.num_scalars == 0) continue;
    const Scalar* scalars = graph.scalars.data() + op.first_scalar;
    result.scalars.insert(result.scalars.end(), scalars, scalars + op.num_scalars);
  }
  return result;
}

// Fills `calls`; true when operands and scalars already lie in the order of the calls, without gaps.
bool list_calls(const LogicalGraph& graph, std::vector<wire::Call>& calls) {
  size_t operand = 0;
  size_t scalar = 0;
  bool ordered = true;
  calls.reserve(graph.operators.size());
  for (const Operator& op : graph.operators) {
    calls.emplace_back(op.spec, op.num_inputs, op.num_outputs, op.num_scalars, op.flags);
    ordered &= op.first_operand == operand && (op.num_scalars == 0 || op.first_scalar == scalar);
    operand += size_t{op.num_inputs} + op.num_outputs;
    scalar += op.num_scalars;
  }
  return ordered && operand == graph.operands.size() && scalar == graph.scalars.size();
}

using MeshIds = std::unordered_map<const MeshData*, uint32_t>;

// `piece` without its calls, which are `calls_of`.
Offset<wire::Piece> put_piece(FlatBufferBuilder& builder, const Piece& piece,
                              const std::vector<OperatorSpec>& new_specs, const LogicalGraph& calls_of,
                              MeshIds& mesh_ids) {
  std::vector<wire::Call> calls;
  const LogicalGraph* graph = &calls_of;
  LogicalGraph reordered;
  if (!list_calls(*graph, calls)) {
    reordered = in_order(*graph);
    graph = &reordered;
  }
  auto scalars = wire::put(builder, reinterpret_cast<const uint64_t*>(graph->scalars.data()), graph->scalars.size());
  auto operands = wire::put(builder, graph->operands);
  auto listed = builder.CreateVectorOfStructs(calls.data(), calls.size());
  Definitions definitions(builder, mesh_ids);
  for (const OperatorSpec& spec : new_specs) definitions.add(spec);
  auto meshes = definitions.meshes();
  auto metas = definitions.metas();
  auto specs = definitions.specs();
  return wire::CreatePiece(builder, piece.sequence, piece.graph, piece.first_transfer, piece.wants_ack_now,
                           definitions.first_mesh(), meshes, metas, specs, listed, operands, scalars,
                           piece.wants_statistics, piece.closes_graph);
}

size_t estimated_bytes(const LogicalGraph& graph, size_t num_specs) {
  const size_t flat_bytes =
      graph.operators.size() * sizeof(wire::Call) + graph.operands.size() * 4 + graph.scalars.size() * 8;
  DTORCH_CHECK(flat_bytes < wire::kMaxHeadBytes / 2, "a piece is too large");
  return flat_bytes + 256 + num_specs * 256;
}

}  // namespace

Message PieceEncoder::encode(const Piece& piece) {
  FlatBufferBuilder builder(estimated_bytes(piece.graph_part, piece.new_specs.size()));
  Message message = wire::seal(builder, put_piece(builder, piece, piece.new_specs, piece.graph_part, mesh_ids_), kKind);
  message.epoch = piece.epoch;
  return message;
}

Message PieceEncoder::encode(const TemplateDefinition& definition) {
  const LogicalGraph& calls = definition.body->calls();
  FlatBufferBuilder builder(estimated_bytes(calls, definition.new_specs.size()));
  Piece head;
  head.graph = definition.graph;
  auto piece = put_piece(builder, head, definition.new_specs, calls, mesh_ids_);
  auto varying = wire::put(builder, definition.varying);
  Message message =
      wire::seal(builder, wire::CreateTemplate(builder, definition.id, definition.body->num_live_ins(), piece, varying),
                 MessageKind::kTemplate);
  message.epoch = definition.epoch;
  return message;
}

PieceEncoder PieceEncoder::at(size_t num_meshes) const {
  PieceEncoder earlier;
  for (const auto& [mesh, id] : mesh_ids_) {
    if (id < num_meshes) earlier.mesh_ids_.emplace(mesh, id);
  }
  return earlier;
}

Message PieceEncoder::encode(const SnapshotOrder& order) {
  FlatBufferBuilder builder(1024 + order.values.size() * 16);
  Definitions definitions(builder, mesh_ids_);
  if (order.action == SnapshotAction::kRestore) {
    std::vector<const MeshData*> meshes(mesh_ids_.size());
    for (const auto& [mesh, id] : mesh_ids_) meshes[id] = mesh;
    definitions.define_again(meshes);
  }
  std::vector<uint32_t> graphs, slots, numbers;
  std::vector<uint8_t> ragged;
  for (const LiveValue& value : order.values) {
    graphs.push_back(value.graph);
    slots.push_back(value.slot);
    numbers.push_back(definitions.number_of(value.meta));
    ragged.push_back(value.is_ragged ? 1 : 0);
  }
  auto meshes = definitions.meshes();
  auto metas = definitions.metas();
  auto defined = wire::CreatePiece(builder, 0, 0, 0, false, definitions.first_mesh(), meshes, metas);
  auto in_graphs = wire::put(builder, graphs);
  auto in_slots = wire::put(builder, slots);
  auto of_metas = wire::put(builder, numbers);
  auto are_ragged = wire::put(builder, ragged);
  auto nodes = wire::put(builder, order.places.node_of_device);
  auto buddies = wire::put(builder, order.places.buddies);
  auto done = wire::put(builder, order.done_effects);
  Message message =
      wire::seal(builder,
                 wire::CreateSnapshot(builder, order.snapshot, static_cast<uint8_t>(order.action), defined, in_graphs,
                                      in_slots, of_metas, are_ragged, nodes, buddies, order.places.num_copies, done),
                 MessageKind::kSnapshot);
  message.epoch = order.epoch;
  return message;
}

}  // namespace dtorch
