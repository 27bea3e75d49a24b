#include "runtime/controller/main_controller.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/controller/eager_graph_executor.h"
#include "runtime/controller/handshake.h"

namespace dtorch {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr uint32_t kEpoch = 1;
constexpr auto kWatchdogTurn = milliseconds(1000);
constexpr auto kWarnAfter = std::chrono::seconds(30);
// How long the inbox thread yields before it sleeps while a read waits.
constexpr auto kSpinForRead = std::chrono::microseconds(60);

Clock::duration seconds(double s) { return duration_cast<Clock::duration>(std::chrono::duration<double>(s)); }
// 0 means never; a year will do.
double deadline_of(const RuntimeOptions& options) { return options.deadline_s > 0 ? options.deadline_s : 3.2e7; }

}  // namespace

struct MainController::State {
  State(ControlEndpoint& control_endpoint, int32_t nodes, const RuntimeOptions& runtime_options)
      : control(control_endpoint),
        num_nodes(nodes),
        options(runtime_options),
        binding(bind_devices(options, nodes)),
        credits(std::max<int64_t>(1, options.inflight_operators), std::max<int64_t>(1, options.inflight_bytes)),
        ledger(nodes, credits),
        sequencer(control, ledger, credits, binding, kEpoch) {}

  void serve_inbox();
  std::optional<Envelope> next_envelope();
  void handle(const Envelope& envelope);
  void watch();

  ControlEndpoint& control;
  const int32_t num_nodes;
  const RuntimeOptions options;
  const DeviceBinding binding;
  Credits credits;
  Ledger ledger;
  Sequencer sequencer;
  std::vector<Hello> hellos;  // filled by start
  std::thread inbox_thread;
  std::atomic<bool> stop{false};
  std::atomic<bool> stop_seen{false};
  static_assert(std::atomic<bool>::is_always_lock_free, "request_stop runs in signal handlers");

  std::mutex mutex;
  std::condition_variable goodbye_said;
  std::map<GraphLink*, std::unique_ptr<EagerGraphExecutor>> executors;  // under mutex
  std::set<int32_t> goodbyes;                                           // under mutex
  bool ended = false;                                                   // under mutex
  int32_t warned_node = -1;                                             // the inbox thread's
};

std::optional<Envelope> MainController::State::next_envelope() {
  if (ledger.reads_outstanding()) {
    const auto until = Clock::now() + kSpinForRead;
    do {
      if (std::optional<Envelope> envelope = control.inbox().try_pop()) return envelope;
      std::this_thread::yield();
    } while (Clock::now() < until);
  }
  return control.inbox().pop_for(kWatchdogTurn);
}

void MainController::State::serve_inbox() {
  for (;;) {
    std::optional<Envelope> envelope = next_envelope();
    {
      std::lock_guard lock(mutex);
      if (ended) return;
    }
    try {
      if (envelope) {
        handle(*envelope);
      } else {
        watch();
      }
    } catch (const std::exception& error) {
      const std::string from = envelope ? "node " + std::to_string(envelope->from) + ": " : "";
      ledger.fail_all(std::make_exception_ptr(RuntimeFault(from + error.what())));
    }
  }
}

void MainController::State::handle(const Envelope& envelope) {
  const Message& message = envelope.message;
  ledger.on_heard(envelope.from);
  switch (message.kind) {
    case MessageKind::kAck:
      return ledger.on_ack(decode_ack(message));
    case MessageKind::kReadData:
      return ledger.on_read_data(decode_read_data(message), message.payload);
    case MessageKind::kError: {
      const ErrorReport report = decode_error(message);
      if (report.device >= 0) return ledger.on_error(report);
      throw RuntimeFault(report.message);
    }
    case MessageKind::kGoodbye: {
      const int32_t node = decode_goodbye(message);
      std::lock_guard lock(mutex);
      goodbyes.insert(node);
      goodbye_said.notify_all();
      return;
    }
    case MessageKind::kHello:
    case MessageKind::kConfig:
    case MessageKind::kPiece:
    case MessageKind::kFeed:
    case MessageKind::kShutdown:
    case MessageKind::kResetPeak:
      break;
  }
  throw RuntimeFault("it sent a message of a kind that nodes don't send now");
}

void MainController::State::watch() {
  const Ledger::Silence silence = ledger.longest_silence(Clock::now());
  if (silence.node < 0 || silence.since < std::min<Clock::duration>(kWarnAfter, seconds(deadline_of(options)))) {
    warned_node = -1;
    return;
  }
  const std::string text = "node " + std::to_string(silence.node) + " has been silent for " +
                           std::to_string(duration_cast<std::chrono::seconds>(silence.since).count()) + " s; it owes " +
                           silence.where;
  if (silence.since >= seconds(deadline_of(options))) throw RuntimeFault(text);
  if (warned_node != silence.node) log_warn("{}", text);
  warned_node = silence.node;
}

MainController::MainController(ControlEndpoint& control, int32_t num_nodes, const RuntimeOptions& options)
    : state_(std::make_unique<State>(control, num_nodes, options)) {}

MainController::~MainController() {
  bool ended = false;
  {
    std::lock_guard lock(state_->mutex);
    ended = state_->ended;
  }
  if (!ended) shutdown(1, "the controller ended early", 0);
}

void MainController::start() {
  State& s = *state_;
  s.hellos = collect_hellos(s.control, s.num_nodes, Clock::now() + seconds(deadline_of(s.options)),
                            OperatorRegistry::global().hash());
  const Message config = encode(make_config(s.binding, s.options, kEpoch));
  for (int32_t node = 0; node < s.num_nodes; ++node) s.control.send(node, config);
  s.inbox_thread = std::thread([&s] { s.serve_inbox(); });
}

void MainController::fail(std::exception_ptr error) { state_->ledger.fail_all(std::move(error)); }
std::exception_ptr MainController::failure() const { return state_->ledger.failure(); }

bool MainController::shutdown(int exit_code, const std::string& reason, double grace_s) {
  State& s = *state_;
  // Whatever is still attached can't go on. Executors end before the Shutdown message, so that no piece follows it.
  s.ledger.fail_all(std::make_exception_ptr(RuntimeFault("the job has ended: " + reason)));
  std::map<GraphLink*, std::unique_ptr<EagerGraphExecutor>> executors;
  {
    std::lock_guard lock(s.mutex);
    executors.swap(s.executors);
  }
  executors.clear();
  const Message message = encode(Shutdown{exit_code, reason});
  for (int32_t node = 0; node < s.num_nodes; ++node) s.control.send(node, message);
  bool all = false;
  {
    std::unique_lock lock(s.mutex);
    const auto complete = [&] { return s.goodbyes.size() == static_cast<size_t>(s.num_nodes); };
    all = s.inbox_thread.joinable() && s.goodbye_said.wait_for(lock, seconds(grace_s), complete);
    s.ended = true;
  }
  s.control.inbox().close();
  if (s.inbox_thread.joinable()) s.inbox_thread.join();
  return all;
}

const DeviceBinding& MainController::binding() const { return state_->binding; }

void MainController::attach(std::shared_ptr<GraphLink> link) {
  State& s = *state_;
  GraphLink* key = link.get();
  PassList passes = make_default_passes();
  if (s.options.explain) {
    passes.insert(passes.begin(), make_print_pass("before the passes", s.binding));
    passes.push_back(make_print_pass("after the passes", s.binding));
  }
  auto executor =
      std::make_unique<EagerGraphExecutor>(std::move(link), s.ledger, s.sequencer, s.credits, std::move(passes));
  std::lock_guard lock(s.mutex);
  s.executors[key] = std::move(executor);
}

void MainController::detach(GraphLink& link) {
  std::unique_ptr<EagerGraphExecutor> executor;
  {
    std::lock_guard lock(state_->mutex);
    auto found = state_->executors.find(&link);
    if (found == state_->executors.end()) return;
    executor = std::move(found->second);
    state_->executors.erase(found);
  }
  executor.reset();  // waits
}

RuntimeStats MainController::stats() {
  RuntimeStats stats = state_->ledger.stats();
  stats.control_messages = state_->control.messages_sent();
  stats.control_bytes = state_->control.bytes_sent();
  return stats;
}

void MainController::add_device_memory(ClientStats& stats) { state_->ledger.add_device_memory(state_->binding, stats); }

void MainController::reset_peak_bytes() {
  const Message message = encode_reset_peak();
  for (int32_t node = 0; node < state_->num_nodes; ++node) state_->control.send(node, message);
  state_->ledger.reset_peaks();
}

bool MainController::stop_requested() const {
  if (!state_->stop.load()) return false;
  state_->stop_seen.store(true);
  return true;
}
bool MainController::stop_seen() const { return state_->stop_seen.load(); }
void MainController::request_stop() { state_->stop.store(true); }
std::string MainController::describe_nodes() { return describe_hellos(state_->hellos, state_->binding); }

}  // namespace dtorch
