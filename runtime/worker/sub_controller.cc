// The Sub-Controller's thread: decodes, lowers each spec once, numbers transfers and hands whole pieces to the streams.
#include "runtime/worker/sub_controller.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <unordered_map>

#include "runtime/base/log.h"
#include "runtime/worker/kernel_stream.h"

namespace dtorch {
namespace {

// Operand numbers are dense, so a larger one is damage.
constexpr size_t kMaxSlots = size_t{1} << 26;

struct GraphState {
  size_t number = 0;                                      // dense on this node
  std::vector<std::unique_ptr<const LoweredSpec>> specs;  // by id, null where a spec was never needed
};

struct HostData {
  SharedBytes bytes;
  uint32_t uses_left = 0;
};

}  // namespace

struct SubController::State {
  State(int32_t node_number, ControlEndpoint& control, CommThread& comm)
      : node(std::make_shared<NodeContext>(node_number, control, comm)) {}

  void say_hello();
  // True when the service ends.
  bool handle(Envelope envelope);
  void configure(const Config& config);
  void take_feed(const Message& message);
  void take_piece(const Message& message);
  void add_specs(PieceRun& run, GraphState& graph);
  void prepare_calls(PieceRun& run, const GraphState& graph);
  void prepare_feed(PieceRun& run, const Operator& op, uint32_t op_index, const LoweredSpec& spec);
  void prepare_move(PieceRun& run, uint32_t op_index, uint64_t number, const LoweredSpec& spec);
  void end(const Shutdown& shutdown);
  void end_streams(bool drain);

  std::shared_ptr<NodeContext> node;
  std::unique_ptr<DeviceBackend> backend = make_cpu_backend();
  std::vector<int64_t> local_devices;  // by local index
  std::vector<std::unique_ptr<KernelStream>> streams;
  std::unique_ptr<PieceDecoder> decoder;
  std::unordered_map<GraphId, GraphState> graphs;
  std::unordered_map<uint64_t, HostData> feeds;
  // A message couldn't be understood: what follows can't either. Only a Shutdown is still answered.
  bool broken = false;
  int exit_code = 1;
};

SubController::SubController(int32_t node, ControlEndpoint& control, CommThread& comm)
    : state_(std::make_unique<State>(node, control, comm)) {}

SubController::~SubController() { state_->end_streams(false); }

int SubController::run() {
  State& state = *state_;
  state.say_hello();
  Inbox& inbox = state.node->control.inbox();
  while (std::optional<Envelope> envelope = inbox.pop()) {
    if (state.handle(std::move(*envelope))) return state.exit_code;
  }
  state.end_streams(false);  // the channel is gone
  return state.exit_code;
}

bool SubController::State::handle(Envelope envelope) {
  const Message& message = envelope.message;
  try {
    if (message.kind == MessageKind::kShutdown) {
      Shutdown shutdown;
      shutdown.exit_code = 1;
      try {
        shutdown = decode_shutdown(message);
      } catch (const DecodeError& e) {
        shutdown.reason = e.what();  // damaged, but an end all the same
      }
      end(shutdown);
      return true;
    }
    if (broken) return false;
    switch (message.kind) {
      case MessageKind::kConfig:
        configure(decode_config(message));
        break;
      case MessageKind::kFeed:
        take_feed(message);
        break;
      case MessageKind::kPiece:
        take_piece(message);
        break;
      case MessageKind::kResetPeak:
        decode_reset_peak(message);
        node->reset_peaks();
        break;
      default:
        throw DecodeError("a Sub-Controller got a message of kind " + std::to_string(static_cast<int>(message.kind)));
    }
  } catch (const std::exception& e) {
    broken = true;
    log_debug("{}", e.what());  // the controller prints what it is told
    node->report(-1, 0, 0, e.what());
  }
  return false;
}

void SubController::State::say_hello() {
  Hello hello;
  hello.node = node->node;
  char host[256] = {};
  hello.host = gethostname(host, sizeof host - 1) == 0 ? host : "unknown";
  hello.pid = getpid();
  hello.versions = std::string("DTorch ") + DTORCH_VERSION;
  hello.registry_hash = OperatorRegistry::global().hash();
  hello.num_cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  node->control.send(kController, encode(hello));
}

void SubController::State::configure(const Config& config) {
  DTORCH_CHECK(decoder == nullptr, "a second Config message");
  node->config = config;
  node->config.threads_per_device = std::max(1, config.threads_per_device);
  node->binding = {config.node_of_device, config.slot_of_device, config.num_nodes};
  for (int64_t device = 0; device < node->binding.num_devices(); ++device) {
    if (node->binding.node_of(device) == node->node) local_devices.push_back(device);
  }
  std::sort(local_devices.begin(), local_devices.end(),
            [&](int64_t a, int64_t b) { return node->binding.slot_of(a) < node->binding.slot_of(b); });
  for (size_t i = 0; i < local_devices.size(); ++i) node->devices.emplace_back().memory = new_memory_counter();
  for (size_t i = 0; i < local_devices.size(); ++i) {
    streams.push_back(std::make_unique<KernelStream>(node, *backend, i, local_devices[i]));
  }
  decoder = std::make_unique<PieceDecoder>(static_cast<uint16_t>(OperatorRegistry::global().size()),
                                           node->binding.num_devices());
}

void SubController::State::take_feed(const Message& message) {
  Feed feed = decode_feed(message);
  DTORCH_CHECK(decoder != nullptr, "host data before the Config message");
  if (feed.epoch != node->config.epoch) return;
  SharedBytes bytes = message.payload ? message.payload : std::make_shared<const Bytes>();
  feeds[feed.feed] = {std::move(bytes), feed.num_uses};
}

void SubController::State::take_piece(const Message& message) {
  DTORCH_CHECK(decoder != nullptr, "a piece before the Config message");
  auto run = std::make_unique<PieceRun>();
  run->node = node;
  run->piece = decoder->decode(message);
  if (run->piece.epoch != node->config.epoch) return;
  auto [at, is_new] = graphs.try_emplace(run->piece.graph);
  GraphState& graph = at->second;
  if (is_new) graph.number = graphs.size() - 1;
  run->graph = graph.number;
  // Prepares everything that can fail before anybody sees the run.
  add_specs(*run, graph);
  run->parts.store(static_cast<int64_t>(streams.size()) + 1, std::memory_order_relaxed);
  node->acks.begin(run->piece.sequence, run->piece.wants_ack_now);
  PieceRun* shared = run.release();  // freed by its last part
  try {
    prepare_calls(*shared, graph);
  } catch (...) {
    shared->parts.fetch_sub(static_cast<int64_t>(streams.size()), std::memory_order_relaxed);
    shared->finish_part();
    throw;
  }
  for (const std::unique_ptr<KernelStream>& stream : streams) stream->push(shared);
  shared->finish_part();
}

void SubController::State::add_specs(PieceRun& run, GraphState& graph) {
  for (OperatorSpec& spec : run.piece.new_specs) {
    // Numbers are dense but for specs whose calls were all dropped; the decoder has bounded them.
    if (graph.specs.size() <= spec.id) graph.specs.resize(size_t{spec.id} + 1);
    std::unique_ptr<const LoweredSpec>& lowered = graph.specs[spec.id];
    DTORCH_CHECK(lowered == nullptr, "an operator spec is defined twice");
    lowered = lower_spec(std::move(spec), local_devices, *node, *backend);
    run.new_specs.push_back(lowered.get());
  }
}

void SubController::State::prepare_calls(PieceRun& run, const GraphState& graph) {
  const LogicalGraph& calls = run.piece.graph_part;
  OperandId last = 0;
  for (OperandId id : calls.operands) last = std::max(last, id & kMaxOperand);
  run.num_slots = calls.operands.empty() ? 0 : size_t{last} + 1;
  if (run.num_slots > kMaxSlots) throw DecodeError("operand number " + std::to_string(last) + " is too large");
  uint64_t transfer = run.piece.first_transfer;
  for (size_t i = 0; i < calls.operators.size(); ++i) {
    const Operator& op = calls.operators[i];
    if (op.spec == kReleaseSpec) continue;
    DTORCH_CHECK(op.spec < graph.specs.size() && graph.specs[op.spec] != nullptr, "a call of an unknown operator spec");
    const LoweredSpec& spec = *graph.specs[op.spec];
    if (spec.moves) prepare_move(run, static_cast<uint32_t>(i), transfer++, spec);
    if (spec.uses_feed) prepare_feed(run, op, static_cast<uint32_t>(i), spec);
  }
}

void SubController::State::prepare_feed(PieceRun& run, const Operator& op, uint32_t op_index, const LoweredSpec& spec) {
  DTORCH_CHECK(op.num_scalars >= 1, "from_host without the number of its host data");
  auto at = feeds.find(run.piece.graph_part.scalars_of(op)[0].bits);
  if (at == feeds.end()) return;  // the kernel says so
  if (spec.num_users > 0) {
    PieceRun::FeedUse& use = run.feeds.emplace_back();
    use.op_index = op_index;
    use.bytes = at->second.bytes;
    use.users.store(spec.num_users, std::memory_order_relaxed);
  }
  if (at->second.uses_left <= 1) {
    feeds.erase(at);
  } else {
    --at->second.uses_left;
  }
}

void SubController::State::prepare_move(PieceRun& run, uint32_t op_index, uint64_t number, const LoweredSpec& spec) {
  if (!spec.takes_part) return;
  PieceRun::Move& move = run.moves.emplace_back();
  move.op_index = op_index;
  move.arrivals.resize(local_devices.size());
  std::vector<IntrusivePtr<Arrival>> arrivals;  // in the plan's order
  for (int64_t device : spec.plan->local_destinations) {
    auto index =
        static_cast<size_t>(std::find(local_devices.begin(), local_devices.end(), device) - local_devices.begin());
    DTORCH_CHECK(index < local_devices.size(), "a plan names a device that isn't of this node");
    arrivals.push_back(make_intrusive<Arrival>(streams[index]->parker(), *node->devices[index].memory));
    move.arrivals[index] = arrivals.back();
  }
  run.parts.fetch_add(1, std::memory_order_relaxed);
  auto transfer = make_intrusive<OperandTransfer>(spec.plan, number, std::move(arrivals), &run);
  if (!spec.plan->local_sources.empty()) {
    move.transfer = transfer;
    move.providers.store(static_cast<int64_t>(spec.plan->local_sources.size()), std::memory_order_relaxed);
  }
  // Submitted before the sources exist, so that receives are posted early and all nodes start transfers in one order.
  node->comm.submit(IntrusivePtr<CommTask>(transfer.get()));
}

void SubController::State::end_streams(bool drain) {
  if (drain) {
    node->acks.wait_idle();
  } else {
    node->acks.silence();
    node->aborting.store(true);
    for (const std::unique_ptr<KernelStream>& stream : streams) stream->wake();
  }
  for (const std::unique_ptr<KernelStream>& stream : streams) stream->stop();
}

void SubController::State::end(const Shutdown& shutdown) {
  // Only an orderly end may wait for other nodes.
  end_streams(shutdown.exit_code == 0 && !broken);
  node->acks.flush();
  exit_code = broken && shutdown.exit_code == 0 ? 1 : shutdown.exit_code;
  node->control.send(kController, encode_goodbye(node->node));
}

}  // namespace dtorch
