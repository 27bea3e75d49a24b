#include "tests/controller/fake_cluster.h"

#include <chrono>

#include "runtime/client/record_codec.h"

namespace dtorch {

namespace {

constexpr auto kPatience = std::chrono::seconds(10);

OperatorDef make_op{.name = "test_make"};
OperatorDef add_op{.name = "test_add"};
OperatorDef scale_op{.name = "test_scale", .elementwise = true};
OperatorDef sum_op{.name = "test_sum"};
OperatorDef pair_op{.name = "test_pair"};
OperatorDef effect_op{.name = "test_effect", .klass = OperatorClass::kEffect};
OperatorDef move_op{.name = "test_move", .lowering = Lowering::kTransfer};
OperatorDef read_op{.name = "test_read", .klass = OperatorClass::kRead, .lowering = Lowering::kRead};

void register_once() {
  static const bool done = [] {
    for (OperatorDef* def : {&make_op, &add_op, &scale_op, &sum_op, &pair_op, &effect_op, &move_op, &read_op})
      OperatorRegistry::global().add(*def);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace

const OperatorDef& test_operator(const std::string& name) {
  register_once();
  return *OperatorRegistry::global().find(name);
}

FakeNode::FakeNode(InProcessFabric& fabric, int32_t node, Behaviour behaviour)
    : endpoint_(fabric.control(node)),
      node_(node),
      behaviour_(std::move(behaviour)),
      acknowledges_(behaviour_.acknowledges) {
  register_once();
  thread_ = std::thread([this] { serve(); });
}

FakeNode::~FakeNode() {
  endpoint_.inbox().close();
  thread_.join();
}

void FakeNode::serve() {
  const uint64_t hash = behaviour_.registry_hash ? behaviour_.registry_hash : OperatorRegistry::global().hash();
  endpoint_.send(kController, encode(Hello{.node = node_,
                                           .host = "host" + std::to_string(node_),
                                           .pid = 100 + node_,
                                           .versions = behaviour_.versions,
                                           .registry_hash = hash,
                                           .num_cores = 1}));
  while (std::optional<Envelope> envelope = endpoint_.inbox().pop()) {
    const Message& message = envelope->message;
    if (message.kind == MessageKind::kConfig) {
      const auto num_devices = static_cast<int64_t>(decode_config(message).node_of_device.size());
      decoder_ = std::make_unique<PieceDecoder>(static_cast<uint16_t>(OperatorRegistry::global().size()), num_devices);
    } else if (message.kind == MessageKind::kFeed) {
      std::lock_guard lock(mutex_);
      feeds_.push_back(decode_feed(message).feed);
    } else if (message.kind == MessageKind::kPiece) {
      take_piece(decoder_->decode(message));
    } else if (message.kind == MessageKind::kTemplate) {
      TemplateDefinition definition = decoder_->decode_template(message);
      for (const OperatorSpec& spec : definition.new_specs) op_of_spec_[{definition.graph, spec.id}] = spec.op;
      scalars_[{definition.graph, definition.id}] = definition.body->calls().scalars;
      varying_[{definition.graph, definition.id}] = {};
      std::lock_guard lock(mutex_);
      templates_.push_back(std::move(definition));
    } else if (message.kind == MessageKind::kReplay) {
      Replay replay = decoder_->decode_replay(message);
      Piece piece = expand(replay);
      {
        std::lock_guard lock(mutex_);
        replays_.push_back(std::move(replay));
      }
      take_piece(std::move(piece));
    } else if (message.kind == MessageKind::kInspect && behaviour_.answers) {
      Answer answer = behaviour_.answers(node_);
      answer.node = node_;
      answer.number = decode_inspect(message).number;
      endpoint_.send(kController, encode(answer));
    } else if (message.kind == MessageKind::kShutdown) {
      if (behaviour_.says_goodbye) endpoint_.send(kController, encode_goodbye(node_));
    }
  }
}

Piece FakeNode::expand(const Replay& replay) {
  const TemplateBody& body = *replay.body;
  std::map<OperandId, OperandId>& slots = slot_of_name_[replay.graph];
  if (replay.first_call == 0) slots.clear();
  size_t next = 0;
  for (OperandId name : body.externals(replay.first_call, replay.end_call)) slots[name] = replay.operands[next++];
  VaryingScalars& varying = varying_[{replay.graph, replay.id}];
  std::vector<Scalar>& scalars = scalars_[{replay.graph, replay.id}];
  for (uint32_t scalar : replay.new_varying) varying.add(scalar);
  next = 0;
  for (uint32_t scalar : varying.range(body.scalars_before(replay.first_call), body.scalars_before(replay.end_call)))
    scalars[scalar] = replay.scalars[next++];
  Piece piece;
  piece.sequence = replay.sequence;
  piece.graph = replay.graph;
  piece.first_transfer = replay.first_transfer;
  piece.wants_ack_now = replay.wants_ack_now;
  LogicalGraph& graph = piece.graph_part;
  graph.operators.assign(body.calls().operators.begin() + replay.first_call,
                         body.calls().operators.begin() + replay.end_call);
  graph.operands = body.calls().operands;
  graph.scalars = scalars;
  for (OperandId& operand : graph.operands) {
    const auto slot = slots.find(operand & kMaxOperand);
    operand = (slot == slots.end() ? kTemporary | (operand & kMaxOperand) : slot->second) | (operand & kLastUse);
  }
  return piece;
}

void FakeNode::take_piece(Piece piece) {
  for (const OperatorSpec& spec : piece.new_specs) op_of_spec_[{piece.graph, spec.id}] = spec.op;
  for (uint32_t i = 0; i < piece.graph_part.operators.size(); ++i) {
    const Operator& op = piece.graph_part.operators[i];
    if (!op.is_call()) continue;
    const std::string name = OperatorRegistry::global().at(op_of_spec_.at({piece.graph, op.spec})).name;
    if (auto failure = behaviour_.fails.find(name); failure != behaviour_.fails.end()) {
      report(node_, piece.sequence, i, failure->second);
    }
    if (name == "test_read" && node_ == 0) {
      const std::vector<float> values(kTestElements, kReadValue);
      auto bytes = std::make_shared<Bytes>(sizeof(float) * values.size());
      std::memcpy(bytes->data(), values.data(), bytes->size());
      const ReadData data{.epoch = 1,
                          .node = node_,
                          .read = piece.graph_part.scalars_of(op)[0].bits,
                          .box = {.offset = {0}, .size = {kTestElements}}};
      endpoint_.send(kController, encode(data, bytes));
    }
  }
  const Sequence sequence = piece.sequence;
  {
    std::lock_guard lock(mutex_);
    pieces_.push_back(std::move(piece));
    unacknowledged_.insert(sequence);
  }
  arrived_.notify_all();
  if (acknowledges_.load()) acknowledge_all();
}

void FakeNode::send_ack(std::vector<Sequence> sequences) {
  Ack ack;
  ack.epoch = 1;
  ack.node = node_;
  ack.sequences = std::move(sequences);
  ack.kernels_run = 1;
  endpoint_.send(kController, encode(ack));
}

void FakeNode::acknowledge(Sequence sequence) {
  {
    std::lock_guard lock(mutex_);
    unacknowledged_.erase(sequence);
  }
  send_ack({sequence});
}

void FakeNode::acknowledge_all() {
  std::vector<Sequence> sequences;
  {
    std::lock_guard lock(mutex_);
    sequences.assign(unacknowledged_.begin(), unacknowledged_.end());
    unacknowledged_.clear();
  }
  if (!sequences.empty()) send_ack(std::move(sequences));
}

void FakeNode::acknowledge_from_now_on() {
  acknowledges_.store(true);
  acknowledge_all();
}

void FakeNode::report(int64_t device, Sequence sequence, uint32_t op_index, const std::string& message) {
  endpoint_.send(kController, encode(ErrorReport{.epoch = 1,
                                                 .node = node_,
                                                 .device = device,
                                                 .sequence = sequence,
                                                 .op_index = op_index,
                                                 .message = message}));
}

std::vector<Piece> FakeNode::wait_pieces(size_t count) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, kPatience, [&] { return pieces_.size() >= count; });
  return pieces_;
}

std::vector<Piece> FakeNode::wait_operators(size_t count) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, kPatience, [&] {
    size_t seen = 0;
    for (const Piece& piece : pieces_) {
      for (const Operator& op : piece.graph_part.operators) seen += op.is_call();
    }
    return seen >= count;
  });
  return pieces_;
}

std::vector<Piece> FakeNode::pieces() {
  std::lock_guard lock(mutex_);
  return pieces_;
}

std::vector<Replay> FakeNode::replays() {
  std::lock_guard lock(mutex_);
  return replays_;
}

std::vector<TemplateDefinition> FakeNode::templates() {
  std::lock_guard lock(mutex_);
  return templates_;
}

std::vector<uint64_t> FakeNode::feeds() {
  std::lock_guard lock(mutex_);
  return feeds_;
}

TestGraph::TestGraph(MainController& controller, GraphId id, DeviceMesh mesh)
    : controller_(controller), mesh_(std::move(mesh)), link_(std::make_shared<GraphLink>(id, 1024)) {
  controller_.attach(link_);
}

TestGraph::~TestGraph() { close(); }

const OperatorSpec& TestGraph::spec_of(const std::string& op) {
  std::unique_ptr<OperatorSpec>& spec = specs_[op];
  if (spec) return *spec;
  const TensorMeta* sharded = intern_meta({kTestElements}, kFloat32, Layout(mesh_, {Shard(0)}, 1));
  const TensorMeta* replicated = intern_meta({kTestElements}, kFloat32, Layout::replicated(mesh_));
  spec = std::make_unique<OperatorSpec>();
  spec->id = static_cast<uint32_t>(specs_.size() - 1);
  spec->op = test_operator(op).index;
  if (op == "test_add" || op == "test_sum" || op == "test_pair") spec->inputs = {sharded, sharded};
  if (op == "test_effect" || op == "test_read" || op == "test_move" || op == "test_scale") spec->inputs = {sharded};
  if (op == "test_make" || op == "test_add" || op == "test_sum" || op == "test_scale") spec->outputs = {sharded};
  if (op == "test_pair") spec->outputs = {sharded, sharded};
  if (op == "test_move") spec->outputs = {replicated};
  return *spec;
}

void TestGraph::write(const Content& content) {
  if (content.payload) content.payload->add_ref();  // the ring's
  const bool written = write_record(link_->ring, {.kind = content.kind,
                                                  .spec = content.spec,
                                                  .payload = content.payload.get(),
                                                  .where = {"user.cc", content.line},
                                                  .inputs = content.inputs,
                                                  .outputs = content.outputs,
                                                  .releases = content.releases,
                                                  .scalars = content.scalars});
  if (!written && content.payload) content.payload->drop_ref();
}

std::vector<OperandId> TestGraph::call(const std::string& op, std::vector<OperandId> inputs, uint32_t line,
                                       std::vector<OperandId> releases) {
  const OperatorSpec& spec = spec_of(op);
  std::vector<OperandId> outputs;
  for (size_t i = 0; i < spec.outputs.size(); ++i) outputs.push_back(next_slot_++);
  write(
      {.spec = &spec, .line = line, .inputs = std::move(inputs), .outputs = outputs, .releases = std::move(releases)});
  return outputs;
}

OperandId TestGraph::feed(uint64_t number, int64_t num_elements) {
  auto payload = make_intrusive<RecordPayload>();
  payload->feed = HostTensor({num_elements}, kFloat32);
  const OperatorSpec& spec = spec_of("test_make");
  const OperandId slot = next_slot_++;
  write({.spec = &spec, .payload = payload, .outputs = {slot}, .scalars = {Scalar{number}}});
  return slot;
}

IntrusivePtr<ReadState> TestGraph::read(OperandId value, uint32_t line) {
  static std::atomic<uint64_t> next_read{1};
  auto payload = make_intrusive<RecordPayload>();
  payload->read =
      make_intrusive<ReadState>(Shape{kTestElements}, kFloat32, Box{.offset = {0}, .size = {kTestElements}});
  write({.spec = &spec_of("test_read"),
         .payload = payload,
         .line = line,
         .inputs = {value},
         .scalars = {Scalar{next_read++}, Scalar{}}});
  return payload->read;
}

void TestGraph::release(std::vector<OperandId> slots) { write({.releases = std::move(slots)}); }

IntrusivePtr<ReadState> TestGraph::barrier() {
  auto payload = make_intrusive<RecordPayload>();
  payload->read = make_intrusive<ReadState>(Shape{0}, kFloat32, Box{.offset = {0}, .size = {0}});
  write({.kind = RecordKind::kFlush, .payload = payload});
  return payload->read;
}

void TestGraph::close() {
  if (closed_) return;
  closed_ = true;
  write({.kind = RecordKind::kClose});
  controller_.detach(*link_);
}

RuntimeOptions plain_options() {
  RuntimeOptions options;
  options.passes = {"dead_operators", "liveness"};
  return options;
}

FakeCluster::FakeCluster(int32_t num_nodes, FakeNode::Behaviour behaviour, RuntimeOptions options) : fabric(num_nodes) {
  register_once();
  if (options.devices == 0) options.devices = 4;
  for (int32_t n = 0; n < num_nodes; ++n) nodes.push_back(std::make_unique<FakeNode>(fabric, n, behaviour));
  controller = std::make_unique<MainController>(fabric.control(kController), num_nodes, options);
  controller->start();
  mesh = init_device_mesh("cpu", {options.devices});
}

FakeCluster::~FakeCluster() { controller.reset(); }

std::string failure_of(const IntrusivePtr<ReadState>& read) {
  if (!read->wait_for(kPatience)) return "timeout";
  try {
    read->get();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

std::vector<std::string> names_of(const std::vector<Piece>& pieces) {
  std::map<std::pair<GraphId, uint32_t>, std::string> names;
  std::vector<std::string> result;
  for (const Piece& piece : pieces) {
    for (const OperatorSpec& spec : piece.new_specs)
      names[{piece.graph, spec.id}] = OperatorRegistry::global().at(spec.op).name;
    for (const Operator& op : piece.graph_part.operators) {
      result.push_back(op.is_call() ? names.at({piece.graph, op.spec}) : op.spec == kAliasSpec ? "alias" : "release");
    }
  }
  return result;
}

}  // namespace dtorch
