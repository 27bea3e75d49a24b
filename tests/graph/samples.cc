#include "tests/graph/samples.h"

#include <algorithm>

namespace dtorch::testing_graph {

namespace {

SharedBytes bytes_of(size_t size) { return std::make_shared<const Bytes>(size, std::byte{7}); }

void add_call(LogicalGraph& graph, uint32_t spec, const std::vector<OperandId>& inputs,
              const std::vector<OperandId>& outputs, const std::vector<Scalar>& scalars = {}) {
  Operator op;
  op.spec = spec;
  op.first_operand = static_cast<uint32_t>(graph.operands.size());
  op.first_scalar = static_cast<uint32_t>(graph.scalars.size());
  op.num_inputs = static_cast<uint16_t>(inputs.size());
  op.num_outputs = static_cast<uint16_t>(outputs.size());
  op.num_scalars = static_cast<uint16_t>(scalars.size());
  graph.operators.push_back(op);
  graph.operands.insert(graph.operands.end(), inputs.begin(), inputs.end());
  graph.operands.insert(graph.operands.end(), outputs.begin(), outputs.end());
  graph.scalars.insert(graph.scalars.end(), scalars.begin(), scalars.end());
}

bool same_spec(const OperatorSpec& a, const OperatorSpec& b) {
  return a.id == b.id && a.op == b.op && a.attributes == b.attributes && a.inputs == b.inputs && a.outputs == b.outputs;
}

}  // namespace

Answer sample_answer() {
  const TraceEvent event{.begin_ns = 10,
                         .end_ns = 12,
                         .sequence = 7,
                         .transfer = 3,
                         .bytes = 64,
                         .op_index = 2,
                         .kind = TraceKind::kSend,
                         .peer = 1,
                         .stage = 1};
  return {.epoch = 1,
          .node = 1,
          .number = 3,
          .clock_ns = 123456789,
          .machine = 99,
          .devices = {{.device = 2, .activity = Activity::kRuns, .at = {7, 1}},
                      {.device = 3, .activity = Activity::kWaits, .at = {7, 4}, .waits_for = {7, 2}}},
          .transfers = {{.place = {7, 2}, .number = 12, .phase = TransferPhase::kSources, .waits_for = {2}},
                        {.place = {6, 9}, .number = 11, .phase = TransferPhase::kSends, .waits_for = {0}}},
          .num_transfers = 5,
          .memory = {{.device = 2,
                      .bytes_in_use = 96,
                      .peak_bytes = 128,
                      .num_tensors = 3,
                      .largest = {{.graph = 1, .slot = 5, .storage_bytes = 64}}},
                     {.device = 3}},
          .profiles = {{.device = 2,
                        .window_ns = 1000,
                        .rows = {{.graph = 1,
                                  .spec = 4,
                                  .calls = 7,
                                  .run_ns = 300,
                                  .wait_ns = 20,
                                  .bytes = 4096,
                                  .moved_bytes = 512}}}},
          .tracks = {{.device = 2, .dropped = 1, .events = {event}}, {.device = -1, .events = {event, event}}}};
}

std::vector<Message> sample_messages() {
  Config config;
  config.epoch = 3;
  config.node_of_device = {0, 0, 1, 1};
  config.slot_of_device = {0, 1, 0, 1};
  config.num_nodes = 2;
  config.deadline_s = 12.5;
  Ack ack;
  ack.node = 1;
  ack.sequences = {5, 6, uint64_t{1} << 63};
  ack.bytes_in_use = 1000;
  ack.peak_bytes = 2000;
  ack.kernels_run = 17;
  ack.device_bytes_in_use = {400, 600};
  ack.device_peak_bytes = {2000, 900};
  return {
      encode(Hello{2, "host", 4711, "DTorch 0.1, wire 1", 0xFEDCBA9876543210u, 8}),
      encode(config),
      encode(Feed{1, 99, 2}, bytes_of(24)),
      encode(ack),
      encode(ErrorReport{1, 2, 3, 4, 5, "[matmul] out of memory", sample_answer().memory[0]}),
      encode(ReadData{1, 0, 77, Box{{1, 2}, {2, 3}}}, bytes_of(24)),
      encode(Shutdown{-3, "the client threw"}),
      encode_goodbye(4),
      encode_reset_peak(),
      encode(Inspect{.number = 3, .aspect = Aspect::kStatus}),
      encode(sample_answer()),
      PieceEncoder().encode(sample_snapshot()),
      encode(sample_part(), bytes_of(8 + 20)),
      encode(SnapshotPart{.epoch = 2, .snapshot = 9, .owner = 3, .is_poisoned = true, .poison = "[matmul] failed"},
             nullptr),
      encode(SnapshotStored{2, 1, 9, 1000, 500}),
      encode(SnapshotStored{.epoch = 2, .node = 1, .snapshot = 9, .problem = "memory is short"}),
  };
}

SnapshotOrder sample_snapshot() {
  const DeviceMesh flat = init_device_mesh("cpu", {4});
  const TensorMeta* a = intern_meta({8, 6}, kFloat32, Layout(flat, {Shard(1)}, 2));
  const TensorMeta* b = intern_meta({2}, kInt64, Layout(DeviceMesh("cpu", {2}, {1, 2}), {Replicate()}, 1));
  SnapshotOrder order{.epoch = 2, .snapshot = 9, .action = SnapshotAction::kRestore};
  order.values = {{1, 0, a, false}, {1, 7, b, true}, {4, 2, a, false}};
  order.places.node_of_device.assign(static_cast<size_t>(kNumDevices), 1);
  order.places.buddies = {kNoBuddy, kNoBuddy, 2, 0, 1, kNoBuddy};
  order.places.num_copies = 2;
  order.done_effects = {77, uint64_t{1} << 63};
  return order;
}

// Three numbers, two apart, behind two others.
SnapshotPart sample_part() {
  return {.epoch = 2,
          .snapshot = 9,
          .owner = 3,
          .device = 1,
          .is_copy = true,
          .graph = 4,
          .slot = 7,
          .dtype = kFloat32,
          .local_shape = {3},
          .strides = {2},
          .lead = 8};
}

Piece sample_piece() {
  const DeviceMesh flat = init_device_mesh("cpu", {4});
  const DeviceMesh grid("cpu", {2, 2}, {4, 5, 6, 7}, {"dp", "tp"});
  const TensorMeta* a = intern_meta({8, 6}, kFloat32, Layout(flat, {Shard(1)}, 2));
  const TensorMeta* b =
      intern_meta({8, 6}, kBFloat16, Layout(grid, {Shard(0), Shard(0)}, 2, std::vector<std::string>{"tp", "dp"}));
  const TensorMeta* c = intern_meta({}, kInt64, Layout(grid, {Replicate(), Partial(kMax)}, 0));
  Piece piece;
  piece.epoch = 1;
  piece.sequence = uint64_t{1} << 40;
  piece.graph = 3;
  piece.first_transfer = 12;
  piece.wants_ack_now = true;
  piece.new_specs = {
      {0, 7, "", {}, {a}}, {1, 49, std::string("\0\1attributes", 12), {a, a}, {b, c}}, {2, 0, "x", {b}, {}}};
  LogicalGraph& graph = piece.graph_part;
  add_call(graph, 0, {}, {0}, {Scalar::of(0.5), Scalar::of_int(-1)});
  add_call(graph, 1, {0, 0 | kLastUse}, {1, kMaxOperand});
  add_call(graph, 2, {1}, {});
  add_call(graph, kReleaseSpec, {1, kMaxOperand}, {});
  return piece;
}

TemplateDefinition sample_template() {
  const Piece piece = sample_piece();
  TemplateDefinition definition;
  definition.epoch = 1;
  definition.graph = 3;
  definition.id = 5;
  definition.new_specs = piece.new_specs;
  LogicalGraph calls;
  add_call(calls, kReleaseSpec, {0}, {});
  add_call(calls, 0, {}, {2}, {Scalar::of(0.5), Scalar::of_int(-1)});
  add_call(calls, 1, {2, 1}, {3, 4});
  add_call(calls, 0, {}, {5}, {Scalar::of(2)});
  add_call(calls, 1, {2 | kLastUse, 5 | kLastUse}, {6, 7});
  add_call(calls, 2, {6 | kLastUse}, {});
  add_call(calls, kReleaseSpec, {3}, {});
  definition.body = std::make_shared<const TemplateBody>(std::move(calls), 2);
  return definition;
}

Replay sample_replay(bool varies) {
  Replay replay;
  replay.epoch = 1;
  replay.sequence = 9;
  replay.graph = 3;
  replay.first_transfer = 4;
  replay.id = 5;
  replay.end_call = 7;
  replay.wants_ack_now = true;
  replay.ends = true;
  replay.operands = {10, 11, 12, 13};  // live-ins 0 and 1, then 4 and 7, which outlive it
  if (varies) {
    replay.new_varying = {2};
    replay.scalars = {Scalar::of(3)};
  }
  return replay;
}

Replay half_replay() {
  Replay replay = sample_replay(false);
  replay.end_call = 4;
  replay.ends = false;
  replay.operands = {10, 11, 12};
  return replay;
}

const TensorMeta* PieceSource::random_meta() {
  static const DeviceMesh meshes[] = {
      init_device_mesh("cpu", {1}),
      init_device_mesh("cpu", {4}),
      DeviceMesh("cpu", {2, 3}, {9, 8, 7, 6, 5, 4}, {"dp", "tp"}),
      DeviceMesh("cuda", {2, 2, 2}, {0, 2, 4, 6, 1, 3, 5, 15}),
  };
  const DeviceMesh& mesh = meshes[below(4)];
  const int64_t ndim = below(4);
  Shape shape;
  for (int64_t d = 0; d < ndim; ++d) shape.push_back(below(9));
  Placements placements;
  AxisList order;
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    const int64_t choice = below(ndim == 0 ? 2 : 3);
    placements.push_back(choice == 0   ? Replicate()
                         : choice == 1 ? Partial(static_cast<ReduceOp>(below(4)))
                                       : Shard(below(ndim)));
    order.insert(order.begin() + below(order.size() + 1), static_cast<int8_t>(axis));
  }
  return intern_meta(shape, static_cast<DType>(below(kNumDTypes)), Layout(mesh, placements, ndim, order));
}

OperatorSpec PieceSource::random_spec() {
  OperatorSpec spec;
  // Now and then a number is left out, as when a spec's calls were all dropped.
  spec.id = specs_.empty() ? 0 : specs_.back().id + 1 + static_cast<uint32_t>(below(10) == 0);
  spec.op = static_cast<uint16_t>(below(kNumOps));
  for (int64_t i = below(20); i > 0; --i) spec.attributes.push_back(static_cast<char>(below(256)));
  for (int64_t i = below(4); i > 0; --i) spec.inputs.push_back(random_meta());
  for (int64_t i = below(3); i > 0; --i) spec.outputs.push_back(random_meta());
  return spec;
}

Piece PieceSource::next(int num_calls) {
  Piece piece;
  piece.epoch = 1;
  piece.sequence = ++sequence_;
  piece.graph = graph_;
  piece.first_transfer = random_();
  piece.wants_ack_now = below(2) == 0;
  for (int i = 0; i < num_calls; ++i) {
    const auto operand = [&](int64_t) { return static_cast<OperandId>(below(1000)) | (below(4) == 0 ? kLastUse : 0); };
    const auto slot = [&](int64_t) { return static_cast<OperandId>(below(1000)); };
    std::vector<OperandId> inputs, outputs;
    if (below(12) == 0) {
      for (int64_t k = 1 + below(5); k > 0; --k) inputs.push_back(slot(k));
      add_call(piece.graph_part, kReleaseSpec, inputs, {});
      continue;
    }
    if (specs_.empty() || below(8) == 0) {
      specs_.push_back(random_spec());
      piece.new_specs.push_back(specs_.back());
    }
    const OperatorSpec& spec = specs_[static_cast<size_t>(below(static_cast<int64_t>(specs_.size())))];
    for (size_t k = 0; k < spec.inputs.size(); ++k) inputs.push_back(operand(0));
    for (size_t k = 0; k < spec.outputs.size(); ++k) outputs.push_back(slot(0));
    std::vector<Scalar> scalars;
    for (int64_t k = below(3); k > 0; --k) scalars.push_back({random_() * uint64_t{0x9E3779B97F4A7C15}});
    add_call(piece.graph_part, spec.id, inputs, outputs, scalars);
  }
  return piece;
}

void decode_any(const Message& message) {
  switch (message.kind) {
    case MessageKind::kHello:
      decode_hello(message);
      break;
    case MessageKind::kConfig:
      decode_config(message);
      break;
    case MessageKind::kPiece:
      PieceDecoder(kNumOps, kNumDevices).decode(message);
      break;
    case MessageKind::kFeed:
      decode_feed(message);
      break;
    case MessageKind::kAck:
      decode_ack(message);
      break;
    case MessageKind::kError:
      decode_error(message);
      break;
    case MessageKind::kReadData:
      decode_read_data(message);
      break;
    case MessageKind::kShutdown:
      decode_shutdown(message);
      break;
    case MessageKind::kGoodbye:
      decode_goodbye(message);
      break;
    case MessageKind::kResetPeak:
      decode_reset_peak(message);
      break;
    case MessageKind::kTemplate:
      PieceDecoder(kNumOps, kNumDevices).decode_template(message);
      break;
    case MessageKind::kReplay: {
      PieceEncoder encoder;
      PieceDecoder decoder(kNumOps, kNumDevices);
      decoder.decode_template(encoder.encode(sample_template()));
      decoder.decode_replay(message);
      break;
    }
    case MessageKind::kInspect:
      decode_inspect(message);
      break;
    case MessageKind::kAnswer:
      decode_answer(message);
      break;
    case MessageKind::kSnapshot:
      PieceDecoder(kNumOps, kNumDevices).decode_snapshot(message);
      break;
    case MessageKind::kSnapshotPart:
      decode_snapshot_part(message);
      break;
    case MessageKind::kSnapshotStored:
      decode_snapshot_stored(message);
      break;
  }
}

Message with_head(const Message& message, Bytes head) {
  head.shrink_to_fit();
  return {message.kind, std::make_shared<const Bytes>(std::move(head)), message.payload, message.epoch};
}

std::string difference(const Piece& sent, const Piece& received) {
  if (sent.epoch != received.epoch || sent.sequence != received.sequence || sent.graph != received.graph ||
      sent.first_transfer != received.first_transfer || sent.wants_ack_now != received.wants_ack_now) {
    return "the head";
  }
  if (!std::equal(sent.new_specs.begin(), sent.new_specs.end(), received.new_specs.begin(), received.new_specs.end(),
                  same_spec)) {
    return "the specs";
  }
  const LogicalGraph& a = sent.graph_part;
  const LogicalGraph& b = received.graph_part;
  if (a.operators.size() != b.operators.size()) return "the number of calls";
  const auto bits = [](const Scalar& x, const Scalar& y) { return x.bits == y.bits; };
  for (size_t i = 0; i < a.operators.size(); ++i) {
    const Operator& x = a.operators[i];
    const Operator& y = b.operators[i];
    if (x.spec != y.spec || x.flags != y.flags || !std::ranges::equal(a.inputs(x), b.inputs(y)) ||
        !std::ranges::equal(a.outputs(x), b.outputs(y)) ||
        !std::ranges::equal(a.scalars_of(x), b.scalars_of(y), bits)) {
      return "call " + std::to_string(i);
    }
  }
  return "";
}

}  // namespace dtorch::testing_graph
