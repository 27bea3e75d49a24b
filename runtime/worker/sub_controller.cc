// The Sub-Controller's thread: takes messages, passes on what goes further down the tree, and gives the rest to the
// work of the epoch.
#include "runtime/worker/sub_controller.h"

#include <algorithm>
#include <future>
#include <map>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/worker/answer.h"
#include "runtime/worker/node_work.h"
#include "runtime/worker/snapshot_store.h"

namespace dtorch {
namespace {

// Of kinds that say something about a certain state of the nodes.
bool belongs_to_an_epoch(MessageKind kind) {
  switch (kind) {
    case MessageKind::kPiece:
    case MessageKind::kFeed:
    case MessageKind::kTemplate:
    case MessageKind::kReplay:
    case MessageKind::kAck:
    case MessageKind::kError:
    case MessageKind::kSnapshot:
    case MessageKind::kSnapshotPart:
      return true;
    default:
      return false;
  }
}

}  // namespace

struct SubController::State {
  State(int32_t node_number, ControlEndpoint& control, CommThread& comm, std::unique_ptr<DeviceBackend> devices)
      : node(std::make_shared<NodeContext>(node_number, control, comm)),
        backend(devices ? std::move(devices) : make_cpu_backend()),
        snapshots(control, node_number) {}

  // True when the service ends.
  bool handle(Envelope envelope);
  void take(const Message& message);
  void pass_down(const Message& message, const FanOut& tree);
  void pass_feed_down(const Feed& feed, const Message& message);
  void take_ack(const Message& message);
  void take_question(const Message& message);
  void take_config(const Message& message);
  void configure(const Config& config, FanOut tree);
  void take_feed(const Message& message);
  void take_snapshot(const Message& message);
  void restore(const SnapshotOrder& order);
  NodeWork& current_work(const char* what);
  void end_work(bool drain);
  void end(const Shutdown& shutdown);

  std::shared_ptr<NodeContext> node;  // of the epoch
  const std::unique_ptr<DeviceBackend> backend;
  SnapshotStore snapshots;
  std::map<int64_t, MemoryCounter*> memory_of_device;  // over all epochs
  std::unique_ptr<NodeWork> work;                      // of the epoch; null before the first
  std::shared_future<void> former_background;          // there when that of all earlier epochs has ended
  std::vector<Envelope> early;                         // of an epoch that hasn't begun here
  std::vector<Inspect> early_questions;                // that came before the Config, which travels down the tree
  // A message couldn't be understood: what follows can't either. Only a Shutdown is still answered.
  bool broken = false;
  int exit_code = 1;
};

SubController::SubController(int32_t node, ControlEndpoint& control, CommThread& comm,
                             std::unique_ptr<DeviceBackend> backend)
    : state_(std::make_unique<State>(node, control, comm, std::move(backend))) {}

SubController::~SubController() { state_->end_work(false); }

int SubController::run() {
  State& state = *state_;
  say_hello(*state.node, *state.backend);
  Inbox& inbox = state.node->control.inbox();
  while (std::optional<Envelope> envelope = inbox.pop()) {
    if (state.handle(std::move(*envelope))) return state.exit_code;
  }
  state.end_work(false);  // the channel is gone
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
    if (belongs_to_an_epoch(message.kind) && message.epoch != node->config.epoch) {
      // Others may be ahead: their messages wait for this node's Config. What is left of an earlier epoch is dropped.
      if (message.epoch > node->config.epoch) early.push_back(std::move(envelope));
      return false;
    }
    take(message);
  } catch (const std::exception& e) {
    broken = true;
    log_debug("{}", e.what());  // the controller prints what it is told
    node->report(-1, 0, 0, e.what());
  }
  return false;
}

void SubController::State::take(const Message& message) {
  switch (message.kind) {
    case MessageKind::kConfig:
      return take_config(message);
    case MessageKind::kFeed:
      return take_feed(message);
    case MessageKind::kPiece:
      pass_down(message, node->tree);
      return current_work("a piece").take_piece(message);
    case MessageKind::kTemplate:
      pass_down(message, node->tree);
      return current_work("a template").take_template(message);
    case MessageKind::kReplay:
      pass_down(message, node->tree);
      return current_work("a replay").take_replay(message);
    case MessageKind::kSnapshot:
      pass_down(message, node->tree);
      return take_snapshot(message);
    case MessageKind::kSnapshotPart:
      return snapshots.take_part(decode_snapshot_part(message), message.payload);
    case MessageKind::kResetPeak:
      pass_down(message, node->tree);
      decode_reset_peak(message);
      return node->reset_peaks();
    case MessageKind::kAck:
      return take_ack(message);
    case MessageKind::kError:
      return node->control.send(node->tree.parent(node->node), message);
    case MessageKind::kInspect:
      return take_question(message);
    default:
      throw DecodeError("a Sub-Controller got a message of kind " + std::to_string(static_cast<int>(message.kind)));
  }
}

NodeWork& SubController::State::current_work(const char* what) {
  DTORCH_CHECK(work != nullptr, std::string(what) + " before the Config message");
  return *work;
}

// Others wait for it, so it goes on before it is looked at.
void SubController::State::pass_down(const Message& message, const FanOut& tree) {
  for (int32_t child : tree.children(node->node)) node->control.send(child, message);
}

void SubController::State::pass_feed_down(const Feed& feed, const Message& message) {
  for (int32_t child : node->tree.children(node->node)) {
    const bool wanted = std::any_of(feed.nodes.begin(), feed.nodes.end(),
                                    [&](int32_t wanting) { return node->tree.is_below(wanting, child); });
    if (wanted) node->control.send(child, message);
  }
}

void SubController::State::take_ack(const Message& message) {
  const Ack ack = decode_ack(message);
  if (ack.sequences.empty()) return node->control.send(node->tree.parent(node->node), message);  // statistics
  node->acks.finish_below(ack.sequences);
}

// Questions come from the controller itself, so that a node in between that hangs doesn't hide those below it.
void SubController::State::take_question(const Message& message) {
  const Inspect question = decode_inspect(message);
  if (work == nullptr) return early_questions.push_back(question);
  answer(node, work->streams(), question);
}

void SubController::State::take_config(const Message& message) {
  const Config config = decode_config(message);
  DTORCH_CHECK(work == nullptr || config.epoch != node->config.epoch, "a second Config message");
  if (work != nullptr && config.epoch < node->config.epoch) return;
  FanOut tree =
      config.live_nodes.empty() ? FanOut(config.num_nodes, config.fan_out) : FanOut(config.live_nodes, config.fan_out);
  if (!tree.contains(node->node)) throw RuntimeFault("the job goes on without this node, which was taken for lost");
  pass_down(message, tree);
  for (int32_t other = 0; other < config.num_nodes; ++other) {
    if (!tree.contains(other)) node->control.set_lost(other);
  }
  bool was_traced = false;
  if (work != nullptr) {
    // What the old epoch has begun ends without a word: its kernels, its transfers; and, while messages go on, what it
    // has in the background, which may wait for a disk.
    work->end(false);
    node->comm.begin_epoch(config.epoch);
    work.reset();
    was_traced = node->trace.load(std::memory_order_relaxed) != nullptr;
    former_background = std::async(std::launch::async, [old = node, before = former_background] {
                          if (before.valid()) before.wait();
                          old->background.end();
                        }).share();
    node = std::make_shared<NodeContext>(node->node, node->control, node->comm);
    node->background.begin_after(former_background);
  }
  configure(config, std::move(tree));
  if (was_traced) node->start_trace();
  snapshots.begin_epoch(config.epoch);
  std::vector<Envelope> waiting = std::exchange(early, {});
  for (Envelope& envelope : waiting) handle(std::move(envelope));
}

void SubController::State::configure(const Config& config, FanOut tree) {
  node->config = config;
  node->config.threads_per_device = std::max(1, config.threads_per_device);
  node->background.set_epoch(config.epoch);
  node->binding = {config.node_of_device, config.slot_of_device, config.num_nodes};
  node->tree = std::move(tree);
  node->acks.configure(node->tree.parent(node->node), static_cast<int32_t>(node->tree.children(node->node).size()));
  work = std::make_unique<NodeWork>(node, *backend, memory_of_device);
  for (const Inspect& question : early_questions) answer(node, work->streams(), question);
  early_questions.clear();
}

void SubController::State::take_feed(const Message& message) {
  const Feed feed = decode_feed(message);
  current_work("host data");
  pass_feed_down(feed, message);
  const bool is_own = feed.nodes.empty() || std::ranges::find(feed.nodes, node->node) != feed.nodes.end();
  if (is_own) work->take_feed(feed, message.payload);
}

void SubController::State::take_snapshot(const Message& message) {
  SnapshotOrder order = current_work("a snapshot").take_snapshot(message);
  switch (order.action) {
    case SnapshotAction::kTake: {
      snapshots.begin(order.snapshot, work->devices().size());
      return work->run_on_streams(
          [this, snapshot = order.snapshot, devices = work->devices()](KernelStream& stream, size_t i) {
            snapshots.add(snapshot, devices[i], stream.kept());
          });
    }
    case SnapshotAction::kStore:
      return snapshots.store(std::move(order));
    case SnapshotAction::kCommit:
      return snapshots.commit(order.snapshot);
    case SnapshotAction::kRestore:
      return restore(order);
    case SnapshotAction::kDrop:
      return snapshots.drop(order.snapshot);
  }
}

void SubController::State::restore(const SnapshotOrder& order) {
  std::vector<bool> live(static_cast<size_t>(node->config.num_nodes));
  for (int32_t other : node->tree.nodes()) live[static_cast<size_t>(other)] = true;
  const std::vector<int64_t>& devices = work->devices();
  const auto new_arrival = [&](int64_t device) {
    const auto index = static_cast<size_t>(std::ranges::find(devices, device) - devices.begin());
    return make_intrusive<Arrival>(work->streams().at(index)->parker(), *node->devices.at(index).memory, Place{}, 0);
  };
  auto parts = std::make_shared<const std::vector<KeptPart>>(
      snapshots.restore(order, devices, node->config.node_of_device, live, new_arrival));
  auto numbers = std::make_shared<std::unordered_map<GraphId, size_t>>();
  for (const LiveValue& value : order.values) {
    if (!numbers->contains(value.graph)) numbers->emplace(value.graph, work->number_of(value.graph));
  }
  node->done_effects.insert(order.done_effects.begin(), order.done_effects.end());
  work->run_on_streams([parts, numbers](KernelStream& stream, size_t i) { stream.restore(parts->at(i), *numbers); });
}

void SubController::State::end_work(bool drain) {
  if (work)
    work->end(drain);
  else if (!drain)
    node->aborting.store(true);
  node->background.end();
  if (former_background.valid()) former_background.wait();
}

void SubController::State::end(const Shutdown& shutdown) {
  // Only an orderly end may wait for other nodes.
  end_work(shutdown.exit_code == 0 && !broken);
  node->acks.flush();
  exit_code = broken && shutdown.exit_code == 0 ? 1 : shutdown.exit_code;
  node->control.send(kController, encode_goodbye(node->node));
}

}  // namespace dtorch
