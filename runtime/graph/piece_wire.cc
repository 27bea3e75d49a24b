// Pieces and templates onto the wire; the grammar stands at the top of wire.cc. Encoding and decoding
// (piece_decoder.cc) take one pass over the calls and copy operands and scalars as they are; everything else happens
// once a definition.
#include <limits>

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

// Of a number that the wire form holds in fewer bits.
template <class T>
T narrow(size_t number) {
  DTORCH_CHECK(number <= std::numeric_limits<T>::max(), "a definition is too large");
  return static_cast<T>(number);
}

// Collects the definitions of a piece in order of first use.
class Definitions {
 public:
  Definitions(FlatBufferBuilder& builder, std::unordered_map<const MeshData*, uint32_t>& mesh_ids)
      : builder_(builder), mesh_ids_(mesh_ids), first_mesh_(static_cast<uint32_t>(mesh_ids.size())) {}

  void reserve(size_t num_specs) {
    specs_.reserve(num_specs);
    spec_operands_.reserve(3 * num_specs);
  }
  void add(const OperatorSpec& spec) {
    DTORCH_CHECK(spec.inputs.size() < 0xFFFF && spec.outputs.size() < 0xFFFF, "an operator has too many operands");
    for (const TensorMeta* meta : spec.inputs) spec_operands_.push_back(number_of(meta));
    for (const TensorMeta* meta : spec.outputs) spec_operands_.push_back(number_of(meta));
    attributes_ += spec.attributes;
    specs_.emplace_back(spec.id, narrow<uint32_t>(spec.attributes.size()), spec.op,
                        static_cast<uint16_t>(spec.inputs.size()), static_cast<uint16_t>(spec.outputs.size()));
  }
  // Meshes that the reader doesn't know though this encoder does.
  void define_again(const std::vector<const MeshData*>& meshes) {
    first_mesh_ = 0;
    for (const MeshData* mesh : meshes) meshes_.push_back(put_mesh(builder_, *mesh));
  }
  uint32_t number_of(const TensorMeta* meta) {
    DTORCH_CHECK(meta != nullptr, "an operand has no metadata");
    if (meta == last_meta_) return last_number_;  // a result is often the next one's operand
    DTORCH_CHECK(meta->layout && meta->layout.mesh(), "an operand's metadata are incomplete");
    const auto [entry, is_new] = meta_numbers_.try_emplace(meta, static_cast<uint32_t>(metas_.size()));
    if (is_new) add_meta(*meta);
    last_meta_ = meta;
    return last_number_ = entry->second;
  }
  // Puts them into the builder; set_in() then makes them part of a Piece.
  void finish() {
    placed_.first_mesh = first_mesh_;
    if (!meshes_.empty()) placed_.meshes = builder_.CreateVector(meshes_.data(), meshes_.size());
    placed_.metas = put_structs(metas_);
    placed_.sizes = put_items(sizes_);
    placed_.placements = put_structs(placements_);
    placed_.shard_orders = put_items(shard_orders_);
    placed_.specs = put_structs(specs_);
    placed_.spec_operands = put_items(spec_operands_);
    if (!attributes_.empty()) placed_.attributes = wire::put_bytes(builder_, attributes_);
  }
  void set_in(wire::PieceBuilder& piece) const {
    piece.add_first_mesh(placed_.first_mesh);
    piece.add_meshes(placed_.meshes);
    piece.add_metas(placed_.metas);
    piece.add_sizes(placed_.sizes);
    piece.add_placements(placed_.placements);
    piece.add_shard_orders(placed_.shard_orders);
    piece.add_specs(placed_.specs);
    piece.add_spec_operands(placed_.spec_operands);
    piece.add_attributes(placed_.attributes);
  }

 private:
  template <class T>
  using Items = Offset<flatbuffers::Vector<T>>;

  void add_meta(const TensorMeta& meta) {
    const uint32_t mesh = number_of(meta.layout.mesh().data());
    const AxisList& order = meta.layout.shard_order();
    metas_.emplace_back(mesh, static_cast<uint8_t>(meta.dtype), static_cast<uint8_t>(meta.global_shape.size()),
                        static_cast<uint8_t>(order.size()));
    sizes_.insert(sizes_.end(), meta.global_shape.begin(), meta.global_shape.end());
    for (const Placement& p : meta.layout.placements())
      placements_.emplace_back(static_cast<uint8_t>(p.kind), static_cast<uint8_t>(p.reduce),
                               static_cast<int16_t>(p.dim));
    shard_orders_.insert(shard_orders_.end(), order.begin(), order.end());
  }
  uint32_t number_of(const MeshData* mesh) {
    if (mesh == last_mesh_) return last_mesh_number_;
    auto [entry, is_new] = mesh_ids_.try_emplace(mesh, static_cast<uint32_t>(mesh_ids_.size()));
    if (is_new) meshes_.push_back(put_mesh(builder_, *mesh));
    last_mesh_ = mesh;
    return last_mesh_number_ = entry->second;
  }
  template <class T>
  Items<T> put_items(const std::vector<T>& items) {
    return items.empty() ? Items<T>() : wire::put(builder_, items);
  }
  template <class T>
  Items<const T*> put_structs(const std::vector<T>& structs) {
    return structs.empty() ? Items<const T*>() : builder_.CreateVectorOfStructs(structs.data(), structs.size());
  }

  FlatBufferBuilder& builder_;
  std::unordered_map<const MeshData*, uint32_t>& mesh_ids_;
  uint32_t first_mesh_;
  std::unordered_map<const TensorMeta*, uint32_t> meta_numbers_;
  const TensorMeta* last_meta_ = nullptr;
  uint32_t last_number_ = 0;
  const MeshData* last_mesh_ = nullptr;
  uint32_t last_mesh_number_ = 0;
  std::vector<Offset<wire::Mesh>> meshes_;
  std::vector<wire::Meta> metas_;
  std::vector<int64_t> sizes_;
  std::vector<wire::Placement> placements_;
  std::vector<int8_t> shard_orders_;
  std::vector<wire::Spec> specs_;
  std::vector<uint32_t> spec_operands_;
  std::string attributes_;
  struct Placed {
    uint32_t first_mesh = 0;
    Items<Offset<wire::Mesh>> meshes;
    Items<const wire::Meta*> metas;
    Items<int64_t> sizes;
    Items<const wire::Placement*> placements;
    Items<int8_t> shard_orders;
    Items<const wire::Spec*> specs;
    Items<uint32_t> spec_operands;
    Items<uint8_t> attributes;
  } placed_;
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

// `piece` without its calls and specs, which are `calls_of` and `new_specs`.
Offset<wire::Piece> put_piece(FlatBufferBuilder& builder, const Piece& piece,
                              std::span<const OperatorSpec* const> new_specs, const LogicalGraph& calls_of,
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
  definitions.reserve(new_specs.size());
  for (const OperatorSpec* spec : new_specs) definitions.add(*spec);
  definitions.finish();
  wire::PieceBuilder result(builder);
  result.add_sequence(piece.sequence);
  result.add_graph(piece.graph);
  result.add_first_transfer(piece.first_transfer);
  result.add_wants_ack_now(piece.wants_ack_now);
  result.add_wants_statistics(piece.wants_statistics);
  result.add_closes_graph(piece.closes_graph);
  result.add_calls(listed);
  result.add_operands(operands);
  result.add_scalars(scalars);
  definitions.set_in(result);
  return result.Finish();
}

// A guess: builders grow.
size_t estimated_bytes(const LogicalGraph& graph, size_t num_specs) {
  const size_t flat_bytes =
      graph.operators.size() * sizeof(wire::Call) + graph.operands.size() * 4 + graph.scalars.size() * 8;
  DTORCH_CHECK(flat_bytes < wire::kMaxHeadBytes / 2, "a piece is too large");
  return flat_bytes + 512 + num_specs * 96;
}

std::vector<const OperatorSpec*> pointers_to(const std::vector<OperatorSpec>& specs) {
  std::vector<const OperatorSpec*> pointers;
  pointers.reserve(specs.size());
  for (const OperatorSpec& spec : specs) pointers.push_back(&spec);
  return pointers;
}

}  // namespace

Message PieceEncoder::encode(const Piece& piece) { return encode(piece, pointers_to(piece.new_specs)); }

Message PieceEncoder::encode(const Piece& piece, std::span<const OperatorSpec* const> new_specs) {
  FlatBufferBuilder builder(estimated_bytes(piece.graph_part, new_specs.size()));
  Message message = wire::seal(builder, put_piece(builder, piece, new_specs, piece.graph_part, mesh_ids_), kKind);
  message.epoch = piece.epoch;
  return message;
}

Message PieceEncoder::encode(const TemplateDefinition& definition) {
  return encode(definition, pointers_to(definition.new_specs));
}

Message PieceEncoder::encode(const TemplateDefinition& definition, std::span<const OperatorSpec* const> new_specs) {
  const LogicalGraph& calls = definition.body->calls();
  FlatBufferBuilder builder(estimated_bytes(calls, new_specs.size()));
  Piece head;
  head.graph = definition.graph;
  auto piece = put_piece(builder, head, new_specs, calls, mesh_ids_);
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
  definitions.finish();
  wire::PieceBuilder of_values(builder);
  definitions.set_in(of_values);
  auto defined = of_values.Finish();
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
