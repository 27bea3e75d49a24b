// Pieces on the wire; the grammar stands at the top of wire.cc. Encoding and decoding take one pass over the calls and
// copy operands and scalars as they are; everything else happens once a definition.
#include <algorithm>

#include "runtime/graph/wire_internal.h"

namespace dtorch {

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr MessageKind kKind = MessageKind::kPiece;
// Counts of a spec that isn't defined; real counts are smaller.
constexpr uint16_t kUndefined = 0xFFFF;
constexpr size_t kMaxGraphs = 65536;
// Spec numbers are dense but for specs whose calls were all dropped; a jump beyond this is damage.
constexpr size_t kMaxSpecGap = 65536;
constexpr size_t kMaxMeshes = size_t{1} << 20;
constexpr size_t kMaxNameBytes = 256;

static_assert(sizeof(Scalar) == sizeof(uint64_t) && sizeof(wire::Call) == 12);

// --- encoding
// ---------------------------------------------------------------------------------------------------------------------

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
  uint32_t first_mesh() const { return first_mesh_; }
  auto meshes() { return put_all(meshes_); }
  auto metas() { return put_all(metas_); }
  auto specs() { return put_all(specs_); }

 private:
  Offset<flatbuffers::Vector<uint32_t>> metas_of(const std::vector<const TensorMeta*>& metas) {
    DTORCH_CHECK(metas.size() < kUndefined, "an operator has too many operands");
    std::vector<uint32_t> numbers;
    numbers.reserve(metas.size());
    for (const TensorMeta* meta : metas) numbers.push_back(number_of(meta));
    return wire::put(builder_, numbers);
  }
  uint32_t number_of(const TensorMeta* meta) {
    DTORCH_CHECK(meta != nullptr && meta->layout && meta->layout.mesh(), "an operand's metadata are incomplete");
    auto [entry, is_new] = meta_numbers_.try_emplace(meta, static_cast<uint32_t>(metas_.size()));
    if (is_new) metas_.push_back(put_meta(builder_, *meta, number_of(meta->layout.mesh().data())));
    return entry->second;
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

}  // namespace

Message PieceEncoder::encode(const Piece& piece) {
  const LogicalGraph* graph = &piece.graph_part;
  std::vector<wire::Call> calls;
  LogicalGraph reordered;
  if (!list_calls(*graph, calls)) {
    reordered = in_order(*graph);
    graph = &reordered;
  }
  const size_t flat_bytes = calls.size() * sizeof(wire::Call) + graph->operands.size() * 4 + graph->scalars.size() * 8;
  DTORCH_CHECK(flat_bytes < wire::kMaxHeadBytes / 2, "a piece is too large");
  FlatBufferBuilder builder(flat_bytes + 256 + piece.new_specs.size() * 256);
  auto scalars = wire::put(builder, reinterpret_cast<const uint64_t*>(graph->scalars.data()), graph->scalars.size());
  auto operands = wire::put(builder, graph->operands);
  auto listed = builder.CreateVectorOfStructs(calls.data(), calls.size());
  Definitions definitions(builder, mesh_ids_);
  for (const OperatorSpec& spec : piece.new_specs) definitions.add(spec);
  auto meshes = definitions.meshes();
  auto metas = definitions.metas();
  auto specs = definitions.specs();
  auto root =
      wire::CreatePiece(builder, piece.epoch, piece.sequence, piece.graph, piece.first_transfer, piece.wants_ack_now,
                        definitions.first_mesh(), meshes, metas, specs, listed, operands, scalars);
  return wire::seal(builder, root, kKind);
}

// --- decoding
// ---------------------------------------------------------------------------------------------------------------------
namespace {

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

const TensorMeta* take_meta(wire::Reader& reader, const wire::Meta& meta, const std::vector<DeviceMesh>& meshes) {
  reader.require(is_valid_dtype(meta.dtype()), "an operand is of an unknown dtype");
  const auto dtype = static_cast<DType>(meta.dtype());
  const Shape shape = reader.sizes(meta.shape(), "an operand");
  int64_t bytes = size_of(dtype);
  for (int64_t size : shape) {
    reader.require(!__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes), "an operand is too large");
  }
  reader.require(meta.mesh() < meshes.size(), "an operand is on an unknown mesh");
  const DeviceMesh& mesh = meshes[meta.mesh()];
  const std::vector<wire::Placement> placed = reader.items<wire::Placement>(meta.placements());
  reader.require(placed.size() == static_cast<size_t>(mesh.num_axes()), "an operand's placements don't fit its mesh");
  Placements placements;
  for (const wire::Placement& p : placed) placements.push_back(take_placement(reader, p, shape.ndim()));
  const std::vector<int8_t> ordered = reader.items<int8_t>(meta.shard_order());
  reader.require(ordered.size() <= placed.size(), "an operand's shard order is too long");
  AxisList order;
  for (int8_t axis : ordered) {
    reader.require(axis >= 0 && axis < mesh.num_axes(), "an operand's shard order has an unknown axis");
    reader.require(std::find(order.begin(), order.end(), axis) == order.end(),
                   "an operand's shard order repeats an axis");
    order.push_back(axis);
  }
  return intern_meta(shape, dtype, Layout(mesh, placements, shape.ndim(), order));
}

std::vector<const TensorMeta*> take_operands(wire::Reader& reader, const flatbuffers::Vector<uint32_t>* numbers,
                                             const std::vector<const TensorMeta*>& metas) {
  std::vector<const TensorMeta*> result;
  const std::vector<uint32_t> chosen = reader.items<uint32_t>(numbers);
  reader.require(chosen.size() < kUndefined, "a spec has too many operands");
  result.reserve(chosen.size());
  for (uint32_t number : chosen) {
    reader.require(number < metas.size(), "a spec has an operand without metadata");
    result.push_back(metas[number]);
  }
  return result;
}

// Adds the spec to the table of its Graph.
OperatorSpec take_spec(wire::Reader& reader, const wire::Spec& spec, const std::vector<const TensorMeta*>& metas,
                       uint16_t num_ops, SpecCounts& known) {
  OperatorSpec result;
  result.id = spec.id();
  result.op = spec.op();
  reader.require(result.op < num_ops, "a spec is of an unknown operator");
  result.attributes = reader.bytes(spec.attributes());
  result.inputs = take_operands(reader, spec.inputs(), metas);
  result.outputs = take_operands(reader, spec.outputs(), metas);
  reader.require(result.id < known.size() + kMaxSpecGap && result.id != kReleaseSpec,
                 "a spec's number is out of range");
  if (result.id >= known.size()) known.resize(size_t{result.id} + 1, {kUndefined, kUndefined});
  reader.require(known[result.id].first == kUndefined, "a spec is defined twice");
  known[result.id] = {static_cast<uint16_t>(result.inputs.size()), static_cast<uint16_t>(result.outputs.size())};
  return result;
}

// The hot loop: verifies every call and gives it its place in the flat arrays.
void take_calls(wire::Reader& reader, const wire::Piece& head, const SpecCounts& known, LogicalGraph& graph) {
  const std::vector<wire::Call> calls = reader.items<wire::Call>(head.calls());
  graph.operands = reader.items<OperandId>(head.operands());
  graph.scalars = reader.items<Scalar>(head.scalars());
  graph.operators.resize(calls.size());
  size_t operand = 0;
  size_t scalar = 0;
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
    } else {
      if (op.spec >= known.size() || known[op.spec].first == kUndefined) fail("is of an undefined spec");
      if (known[op.spec] != std::pair(op.num_inputs, op.num_outputs)) fail("doesn't have the operands of its spec");
    }
    if (op.flags != 0) fail("has unknown flags");
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

Piece PieceDecoder::decode(const Message& message) {
  const auto& head = wire::verified<wire::Piece>(message, kKind);
  wire::Reader reader(message, kKind);
  const bool new_graph = specs_.find(head.graph()) == specs_.end();
  reader.require(!new_graph || specs_.size() < kMaxGraphs, "there are too many Graphs");

  Piece piece;
  piece.epoch = head.epoch();
  piece.sequence = head.sequence();
  piece.graph = head.graph();
  piece.first_transfer = head.first_transfer();
  piece.wants_ack_now = head.wants_ack_now();

  // Definitions take effect at once; a failure below takes them back.
  SpecCounts& known = specs_[piece.graph];
  const size_t old_meshes = meshes_.size();
  const size_t old_specs = known.size();
  const auto take_back = [&] {
    meshes_.resize(old_meshes);
    for (const OperatorSpec& spec : piece.new_specs) known[spec.id] = {kUndefined, kUndefined};
    known.resize(old_specs);
    if (new_graph) specs_.erase(piece.graph);
  };
  try {
    const size_t num_meshes = head.meshes() ? head.meshes()->size() : 0;
    reader.require(num_meshes == 0 || head.first_mesh() == old_meshes, "its meshes don't follow those defined before");
    reader.require(old_meshes + num_meshes <= kMaxMeshes, "there are too many meshes");
    for (size_t i = 0; i < num_meshes; ++i) {
      meshes_.push_back(take_mesh(reader, *head.meshes()->Get(static_cast<uint32_t>(i)), num_devices_));
    }
    std::vector<const TensorMeta*> metas;
    if (head.metas()) {
      for (const wire::Meta* meta : *head.metas()) metas.push_back(take_meta(reader, *meta, meshes_));
    }
    if (head.specs()) {
      piece.new_specs.reserve(head.specs()->size());
      for (const wire::Spec* spec : *head.specs())
        piece.new_specs.push_back(take_spec(reader, *spec, metas, num_ops_, known));
    }
    take_calls(reader, head, known, piece.graph_part);
  } catch (const UserError& error) {  // from the constructors of meshes and layouts
    take_back();
    reader.fail(error.what());
  } catch (...) {
    take_back();
    throw;
  }
  return piece;
}

}  // namespace dtorch
