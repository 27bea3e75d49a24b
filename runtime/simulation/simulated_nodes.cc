#include "runtime/simulation/simulated_nodes.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "ops/def/row_exchange.h"
#include "runtime/base/event_log.h"
#include "runtime/base/machine.h"
#include "runtime/comm/fan_out.h"
#include "runtime/graph/inspection.h"
#include "runtime/graph/templates.h"
#include "runtime/simulation/simulated_memory.h"

namespace dtorch {
namespace {

constexpr size_t kLargest = 32;  // tensors of a device in an answer

// What the controller sends goes to one queue, whomever it is for; what nodes say to the controller's inbox.
class ControllerEnd final : public ControlEndpoint {
 public:
  void send(int32_t to, Message message) override {
    messages_.fetch_add(1, std::memory_order_relaxed);
    const auto size = [](const SharedBytes& bytes) { return bytes ? static_cast<int64_t>(bytes->size()) : 0; };
    bytes_.fetch_add(size(message.head) + size(message.payload), std::memory_order_relaxed);
    to_nodes.push({to, std::move(message)});
  }
  Inbox& inbox() override { return inbox_; }
  int64_t messages_sent() const override { return messages_.load(std::memory_order_relaxed); }
  int64_t bytes_sent() const override { return bytes_.load(std::memory_order_relaxed); }

  Inbox to_nodes;  // Envelope::from is the node it is for

 private:
  Inbox inbox_;
  std::atomic<int64_t> messages_{0}, bytes_{0};
};

// What devices get from others when every row is stored: a line's rows, without the share that stays where it is.
int64_t bytes_of_all_rows(const OperatorSpec& spec) {
  const TensorMeta& rows = *spec.outputs.at(0);
  const int64_t positions = rows.layout.mesh().shape()[exchange_axis(spec)];
  int64_t elements = 0;
  for (int64_t index = 0; index < rows.layout.mesh().num_devices(); ++index)
    elements += rows.layout.box_at(rows.global_shape, index).num_elements();
  return elements / positions * (positions - 1) * size_of(rows.dtype);
}

}  // namespace

struct SimulatedNodes::State {
  explicit State(int32_t nodes) : num_nodes(nodes) {}

  void say(int32_t node, Message message) { control.inbox().push({node, std::move(message)}); }
  void say_hello(int32_t node);
  void serve();
  void handle(int32_t node, const Message& message);
  void configure(const Message& message);
  void take(const Message& message);
  void take_piece(const Message& message);
  void take_template(const Message& message);
  void take_replay(const Message& message);
  void define(GraphId graph, const std::vector<OperatorSpec>& new_specs);
  void count(GraphId graph, std::span<const Operator> operators, const std::vector<Scalar>& scalars);
  void send_read(std::span<const Scalar> scalars, const TensorMeta& meta);
  void acknowledge(int32_t node);
  Ack statistics_of(int32_t node, bool with_devices);
  const std::map<uint32_t, int64_t>& classes_of(int32_t node);
  void answer(int32_t node, const Inspect& question);

  const int32_t num_nodes;
  ControllerEnd control;
  // The thread's.
  Config config;
  DeviceBinding binding;
  FanOut tree;  // the first nodes get messages for those below them too, and acknowledge for them
  std::vector<std::vector<int64_t>> devices_of_node;  // in the order of their slots
  std::optional<SimulatedMemory> memory;
  struct NodeClasses {
    size_t num_classes = 0;               // that there were when `devices` was counted
    std::map<uint32_t, int64_t> devices;  // by class
  };
  std::map<int32_t, NodeClasses> node_classes;
  std::optional<PieceDecoder> decoder;
  struct Kept {                   // of a template
    std::vector<Scalar> scalars;  // as of the last instance
    VaryingScalars varying;
  };
  struct Known {
    const TensorMeta* read = nullptr;  // of a read: what is read
    int64_t calls = 0;                 // since the profile was started
    int64_t bytes = 0;                 // of a call's results, all devices together
    int64_t moved_bytes = 0;           // of an exchange of rows: as many rows as there can be
  };
  struct KnownGraph {
    std::vector<Known> specs;  // by id
    std::map<TemplateId, Kept> templates;
  };
  std::map<GraphId, KnownGraph> graphs;
  SharedBytes last_work;  // piece, template or replay: the same bytes go to every node
  Sequence last_sequence = 0;
  bool wants_statistics = false;  // with that sequence
  uint32_t last_question = 0;
  int64_t profile_began_ns = 0;
  int32_t ended_nodes = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;  // under mutex
  std::thread thread;
};

SimulatedNodes::SimulatedNodes(int32_t num_nodes) : state_(std::make_unique<State>(num_nodes)) {}

SimulatedNodes::~SimulatedNodes() {
  state_->control.to_nodes.close();
  if (state_->thread.joinable()) state_->thread.join();
}

ControlEndpoint& SimulatedNodes::control() { return state_->control; }
int32_t SimulatedNodes::num_nodes() const { return state_->num_nodes; }

void SimulatedNodes::start() {
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

bool SimulatedNodes::wait_ended(std::chrono::nanoseconds grace) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, grace, [&] { return state_->ended; });
}

void SimulatedNodes::State::serve() {
  static_cast<void>(pthread_setname_np(pthread_self(), "dtorch-nodes"));  // for tools, where it is allowed
  for (int32_t node = 0; node < num_nodes; ++node) say_hello(node);
  while (std::optional<Envelope> envelope = control.to_nodes.pop()) {
    try {
      handle(envelope->from, envelope->message);
    } catch (const std::exception& error) {
      say(envelope->from,
          encode(ErrorReport{.epoch = config.epoch, .node = envelope->from, .device = -1, .message = error.what()}));
    }
  }
}

void SimulatedNodes::State::say_hello(int32_t node) {
  Hello hello;
  hello.node = node;
  hello.host = "simulated";
  hello.pid = getpid();
  hello.versions = std::string("DTorch ") + DTORCH_VERSION;
  hello.registry_hash = OperatorRegistry::global().hash();
  say(node, encode(hello));
}

void SimulatedNodes::State::handle(int32_t node, const Message& message) {
  switch (message.kind) {
    case MessageKind::kConfig:
      if (!memory) configure(message);
      return;
    case MessageKind::kTemplate:
      return take(message);
    case MessageKind::kPiece:
    case MessageKind::kReplay:
      take(message);
      return acknowledge(node);
    case MessageKind::kFeed:
      return;  // nobody looks at its bytes
    case MessageKind::kResetPeak:
      return memory->reset_peaks();
    case MessageKind::kInspect:
      return answer(node, decode_inspect(message));
    case MessageKind::kShutdown: {
      say(node, encode_goodbye(node));
      if (++ended_nodes < num_nodes) return;
      std::lock_guard lock(mutex);
      ended = true;
      changed.notify_all();
      return;
    }
    default:
      throw DecodeError("a node got a message of kind " + std::to_string(static_cast<int>(message.kind)));
  }
}

void SimulatedNodes::State::configure(const Message& message) {
  config = decode_config(message);
  binding = {config.node_of_device, config.slot_of_device, config.num_nodes};
  tree = FanOut(config.num_nodes, config.fan_out);
  devices_of_node.resize(static_cast<size_t>(num_nodes));
  for (int64_t device = 0; device < binding.num_devices(); ++device)
    devices_of_node.at(static_cast<size_t>(binding.node_of(device))).push_back(device);
  for (std::vector<int64_t>& devices : devices_of_node) {
    std::sort(devices.begin(), devices.end(),
              [&](int64_t a, int64_t b) { return binding.slot_of(a) < binding.slot_of(b); });
  }
  memory.emplace(binding.num_devices());
  decoder.emplace(static_cast<uint16_t>(OperatorRegistry::global().size()), binding.num_devices());
}

void SimulatedNodes::State::take(const Message& message) {
  DTORCH_CHECK(decoder.has_value(), "work before the Config message");
  if (message.head == last_work) return;
  last_work = message.head;
  if (message.kind == MessageKind::kPiece) return take_piece(message);
  message.kind == MessageKind::kTemplate ? take_template(message) : take_replay(message);
}

void SimulatedNodes::State::take_piece(const Message& message) {
  const Piece piece = decoder->decode(message);
  last_sequence = piece.sequence;
  wants_statistics = piece.wants_statistics;
  define(piece.graph, piece.new_specs);
  count(piece.graph, piece.graph_part.operators, piece.graph_part.scalars);
  memory->run(piece.graph, piece.graph_part);
  if (!piece.closes_graph) return;
  memory->forget(piece.graph);
  graphs[piece.graph].templates.clear();  // its calls stay counted
}

void SimulatedNodes::State::take_template(const Message& message) {
  const TemplateDefinition definition = decoder->decode_template(message);
  define(definition.graph, definition.new_specs);
  graphs[definition.graph].templates[definition.id] = {definition.body->calls().scalars, {}};
}

void SimulatedNodes::State::take_replay(const Message& message) {
  const Replay replay = decoder->decode_replay(message);
  last_sequence = replay.sequence;
  wants_statistics = replay.wants_statistics;
  const TemplateBody& body = *replay.body;
  Kept& kept = graphs[replay.graph].templates.at(replay.id);
  for (uint32_t scalar : replay.new_varying) kept.varying.add(scalar);
  size_t next = 0;
  for (uint32_t scalar :
       kept.varying.range(body.scalars_before(replay.first_call), body.scalars_before(replay.end_call)))
    kept.scalars[scalar] = replay.scalars[next++];
  const std::span<const Operator> operators = body.calls().operators;
  count(replay.graph, operators.subspan(replay.first_call, replay.end_call - replay.first_call), kept.scalars);
  memory->replay(replay);
}

void SimulatedNodes::State::define(GraphId graph, const std::vector<OperatorSpec>& new_specs) {
  std::vector<Known>& known = graphs[graph].specs;
  for (const OperatorSpec& spec : new_specs) {
    memory->define(graph, spec);
    if (known.size() <= spec.id) known.resize(size_t{spec.id} + 1);
    const OperatorDef& def = OperatorRegistry::global().at(spec.op);
    if (def.lowering == Lowering::kRead) known[spec.id].read = spec.inputs.at(0);
    if (def.lowering == Lowering::kExchange) known[spec.id].moved_bytes = bytes_of_all_rows(spec);
    for (const TensorMeta* meta : spec.outputs) known[spec.id].bytes += meta->num_bytes();
  }
}

void SimulatedNodes::State::count(GraphId graph, std::span<const Operator> operators,
                                  const std::vector<Scalar>& scalars) {
  std::vector<Known>& known = graphs[graph].specs;
  for (const Operator& op : operators) {
    if (!op.is_call()) continue;
    DTORCH_CHECK(op.spec < known.size(), "a call of an unknown operator spec");
    ++known[op.spec].calls;
    if (known[op.spec].read != nullptr)
      send_read(std::span(scalars).subspan(op.first_scalar, op.num_scalars), *known[op.spec].read);
  }
}

void SimulatedNodes::State::send_read(std::span<const Scalar> scalars, const TensorMeta& meta) {
  DTORCH_CHECK(scalars.size() == 2, "a read has two scalars");
  const int64_t reader = scalars[1].as_int();
  ReadData data;
  data.epoch = config.epoch;
  data.read = scalars[0].bits;
  data.box = reader < 0 ? whole(meta.global_shape) : meta.layout.box_of(meta.global_shape, reader);
  if (data.box.empty()) return;
  say(0,
      encode(data, std::make_shared<const Bytes>(static_cast<size_t>(data.box.num_elements() * size_of(meta.dtype)))));
}

// with_devices: of each one too, which costs the controller time by their number.
Ack SimulatedNodes::State::statistics_of(int32_t node, bool with_devices) {
  Ack ack;
  ack.epoch = config.epoch;
  ack.node = node;
  for (const auto& [class_number, num_devices] : classes_of(node)) {
    ack.bytes_in_use += num_devices * memory->bytes_in_use_of(class_number);
    ack.peak_bytes = std::max(ack.peak_bytes, memory->peak_bytes_of(class_number));
  }
  if (!with_devices) return ack;
  for (int64_t device : devices_of_node[static_cast<size_t>(node)]) {
    ack.device_bytes_in_use.push_back(memory->bytes_in_use(device));
    ack.device_peak_bytes.push_back(memory->peak_bytes(device));
  }
  return ack;
}

// How many of the node's devices are of each class.
const std::map<uint32_t, int64_t>& SimulatedNodes::State::classes_of(int32_t node) {
  NodeClasses& known = node_classes[node];
  if (known.num_classes != memory->num_classes()) {
    known = {memory->num_classes(), {}};
    for (int64_t device : devices_of_node[static_cast<size_t>(node)]) ++known.devices[memory->class_number(device)];
  }
  return known.devices;
}

void SimulatedNodes::State::acknowledge(int32_t node) {
  for (int32_t below = node + 1; wants_statistics && below < num_nodes; ++below) {
    if (tree.branch_of(below) == node) say(below, encode(statistics_of(below, true)));
  }
  Ack ack = statistics_of(node, wants_statistics);
  ack.sequences = {last_sequence};
  say(node, encode(ack));
}

void SimulatedNodes::State::answer(int32_t node, const Inspect& question) {
  Answer answer{.epoch = config.epoch, .node = node, .number = question.number, .machine = machine_number()};
  const bool first_asked = question.number != last_question;
  last_question = question.number;
  const std::vector<int64_t>& devices = devices_of_node.at(static_cast<size_t>(node));
  if (question.aspect == Aspect::kStatus) {
    for (int64_t device : devices) answer.devices.push_back({.device = device});
  } else if (question.aspect == Aspect::kMemory) {
    for (int64_t device : devices) answer.memory.push_back(memory->memory(device, kLargest));
  } else if (question.aspect == Aspect::kStartProfile && first_asked) {
    profile_began_ns = trace_clock_ns();
    for (auto& [id, graph] : graphs) {
      for (Known& spec : graph.specs) spec.calls = 0;
    }
  } else if (question.aspect == Aspect::kProfile && !devices.empty() && devices[0] == 0) {
    // All devices are alike; one speaks for them.
    DeviceProfile& profile = answer.profiles.emplace_back();
    profile.window_ns = trace_clock_ns() - profile_began_ns;
    for (const auto& [number, graph] : graphs) {
      for (uint32_t id = 0; id < graph.specs.size(); ++id) {
        const Known& known = graph.specs[id];
        if (known.calls > 0)
          profile.rows.push_back({.graph = number,
                                  .spec = id,
                                  .calls = known.calls,
                                  .bytes = known.calls * known.bytes,
                                  .moved_bytes = known.calls * known.moved_bytes});
      }
    }
  }
  answer.clock_ns = trace_clock_ns();
  say(node, encode(answer));
}

}  // namespace dtorch
