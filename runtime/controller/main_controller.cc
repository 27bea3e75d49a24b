#include "runtime/controller/main_controller.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "runtime/base/cpu_time.h"
#include "runtime/base/log.h"
#include "runtime/controller/eager_graph_executor.h"
#include "runtime/controller/handshake.h"
#include "runtime/controller/inspection.h"
#include "runtime/controller/peer_lost.h"
#include "runtime/controller/profile.h"
#include "runtime/controller/recovery.h"
#include "runtime/controller/slow_nodes.h"
#include "runtime/controller/timeline.h"
#include "runtime/controller/watchdog.h"

namespace dtorch {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration_cast;

// How long nodes may take to answer: busy ones, those that may be stuck, and those of a job that has failed (I10).
constexpr auto kAnswerWait = std::chrono::seconds(60);
constexpr auto kStatusWait = std::chrono::seconds(2), kFailedAnswerWait = std::chrono::seconds(1);
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
        first_route{1, binding, FanOut(nodes, options.fan_out)},
        log(options.recover && nodes > 1 && options.device != "null"
                ? std::make_unique<ReplayLog>(options.snapshot_every)
                : nullptr),
        ledger(first_route, credits, log ? &log->reads() : nullptr),
        sequencer(control, ledger, credits, first_route, log.get()),
        inspection(control, nodes) {
    if (log)
      recovery = std::make_unique<Recovery>(Recovery::Parts{control, sequencer, ledger, inspection, *log, handling},
                                            options, first_route);
    if (options.trace.empty()) return;
    timeline.emplace(options.trace, nodes);
    ledger.set_trace_book(&timeline->book());
  }

  void serve_inbox();
  std::optional<Envelope> next_envelope();
  void handle(const Envelope& envelope);
  // What every node has to say about it. Throws RuntimeFault when one doesn't.
  std::vector<Answer> ask_all(Aspect aspect, const char* what);
  void finish_timeline(bool in_order);
  double cpu_s();  // that the inbox thread and all executors have taken

  ControlEndpoint& control;
  const int32_t num_nodes;
  const RuntimeOptions options;
  const DeviceBinding binding;  // at the start, as the program sees it for ever
  Credits credits;
  const Route first_route;
  const std::unique_ptr<ReplayLog> log;  // null: nothing is recovered
  Ledger ledger;
  Sequencer sequencer;
  Inspection inspection;
  std::mutex handling;                 // held while a message of a node is handled
  std::unique_ptr<Recovery> recovery;  // with `log`
  std::optional<Timeline> timeline;    // with --trace
  std::optional<Watchdog> watchdog;    // since start, as slow_nodes
  std::optional<SlowNodes> slow_nodes;
  std::vector<Hello> hellos;  // filled by start
  std::thread inbox_thread;
  std::atomic<bool> stop{false};
  std::atomic<bool> stop_seen{false};
  std::atomic<bool> started{false};
  std::atomic<double> profile_began_cpu_s{0};
  static_assert(std::atomic<bool>::is_always_lock_free, "request_stop runs in signal handlers");

  std::mutex mutex;
  std::condition_variable goodbye_said;
  std::map<GraphLink*, std::unique_ptr<EagerGraphExecutor>> executors;  // under mutex
  std::set<int32_t> goodbyes;                                           // under mutex
  double ended_cpu_s = 0;                                               // of executors that have ended; under mutex
  bool ended = false;                                                   // under mutex
};

std::optional<Envelope> MainController::State::next_envelope() {
  if (ledger.reads_outstanding()) {
    const auto until = Clock::now() + kSpinForRead;
    do {
      if (std::optional<Envelope> envelope = control.inbox().try_pop()) return envelope;
      std::this_thread::yield();
    } while (Clock::now() < until);
  }
  return control.inbox().pop();
}

void MainController::State::serve_inbox() {
  static_cast<void>(pthread_setname_np(pthread_self(), "dtorch-inbox"));  // for tools, where it is allowed
  if (timeline) thread_span_log = &timeline->add_track("inbox");
  while (std::optional<Envelope> envelope = next_envelope()) {
    {
      std::lock_guard lock(mutex);
      if (ended) return;
    }
    try {
      std::lock_guard lock(handling);
      handle(*envelope);
    } catch (const std::exception& error) {
      ledger.fail_all(
          std::make_exception_ptr(RuntimeFault("node " + std::to_string(envelope->from) + ": " + error.what())));
    }
  }
}

void MainController::State::handle(const Envelope& envelope) {
  const Message& message = envelope.message;
  if (inspection.is_lost(envelope.from)) return;
  TraceSpan span("message of a node");
  span.set_number(envelope.from);
  // An answer says nothing about what has finished.
  if (message.kind == MessageKind::kAnswer) return inspection.on_answer(envelope.from, decode_answer(message));
  ledger.on_heard(envelope.from);
  switch (message.kind) {
    case MessageKind::kAck:
      ledger.on_ack(decode_ack(message));
      if (recovery) recovery->on_ack();
      return;
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
    case MessageKind::kSnapshotStored:
      if (!recovery) break;
      return recovery->on_stored(decode_snapshot_stored(message));
    case MessageKind::kSnapshot:
    case MessageKind::kSnapshotPart:
    case MessageKind::kHello:
    case MessageKind::kConfig:
    case MessageKind::kPiece:
    case MessageKind::kFeed:
    case MessageKind::kShutdown:
    case MessageKind::kResetPeak:
    case MessageKind::kTemplate:
    case MessageKind::kReplay:
    case MessageKind::kInspect:
    case MessageKind::kAnswer:
      break;
  }
  throw RuntimeFault("it sent a message of a kind that nodes don't send now");
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
  s.sequencer.send_to_all(encode(make_config(s.first_route, s.options)));
  s.inbox_thread = std::thread([&s] { s.serve_inbox(); });
  s.started.store(true);
  if (s.timeline) s.timeline->start(s.inspection);
  s.watchdog.emplace(s.ledger, s.inspection,
                     Watchdog::Limits{seconds(s.options.stall_report_s), seconds(s.options.deadline_s)});
  if (s.options.slow_node_factor > 0 && s.num_nodes > 1)
    s.slow_nodes.emplace(view_for_slow_nodes(s.ledger, s.inspection), node_names(s.hellos),
                         SlowNodes::Settings{.factor = s.options.slow_node_factor});
}

void MainController::node_lost(int32_t node, const std::string& cause) {
  State& s = *state_;
  if (s.recovery && s.started.load()) {
    s.recovery->node_lost(node, cause);
    std::lock_guard lock(s.mutex);
    s.goodbye_said.notify_all();  // nobody waits for this one's
    return;
  }
  s.control.set_lost(node);
  s.inspection.set_lost(node);
  s.ledger.fail_all(std::make_exception_ptr(PeerLost("node " + std::to_string(node) + " is lost: " + cause)));
}

RecoveryStats MainController::recovery_stats() const {
  return state_->recovery ? state_->recovery->stats() : RecoveryStats{};
}

std::vector<int32_t> MainController::lost_nodes() const {
  std::vector<int32_t> lost;
  for (int32_t node = 0; node < state_->num_nodes; ++node) {
    if (state_->inspection.is_lost(node)) lost.push_back(node);
  }
  return lost;
}

void MainController::fail(std::exception_ptr error) { state_->ledger.fail_all(std::move(error)); }
std::exception_ptr MainController::failure() const { return state_->ledger.failure(); }

std::string MainController::describe_status() {
  State& s = *state_;
  // Until then somebody else takes what nodes say.
  if (!s.started.load()) return "the job is starting";
  const RuntimeStats stats = s.ledger.stats();
  return std::to_string(stats.operators) + " operators and " + std::to_string(stats.reads) +
         " reads since the start, " + std::to_string(s.credits.operators_in_flight()) + " operators under way:\n" +
         dtorch::describe_status(s.inspection.ask(Aspect::kStatus, kStatusWait), s.ledger.status_names()) +
         (s.slow_nodes ? s.slow_nodes->status_line() : "");
}

bool MainController::shutdown(int exit_code, const std::string& reason, double grace_s) {
  State& s = *state_;
  s.watchdog.reset();
  s.slow_nodes.reset();
  // Whatever is still attached can't go on. Executors end before the Shutdown message, so that no piece follows it.
  s.ledger.fail_all(std::make_exception_ptr(RuntimeFault("the job has ended: " + reason)));
  if (s.recovery) s.recovery->stop();  // it may hold up executors
  std::map<GraphLink*, std::unique_ptr<EagerGraphExecutor>> executors;
  {
    std::lock_guard lock(s.mutex);
    executors.swap(s.executors);
  }
  executors.clear();
  if (s.timeline && s.inbox_thread.joinable()) s.finish_timeline(exit_code == 0);
  s.inspection.close();
  const Message message = encode(Shutdown{exit_code, reason});
  for (int32_t node = 0; node < s.num_nodes; ++node) {
    if (!s.inspection.is_lost(node)) s.control.send(node, message);
  }
  bool all = false;
  {
    std::unique_lock lock(s.mutex);
    const auto complete = [&] {
      for (int32_t node = 0; node < s.num_nodes; ++node) {
        if (!s.goodbyes.contains(node) && !s.inspection.is_lost(node)) return false;
      }
      return true;
    };
    all = s.inbox_thread.joinable() && s.goodbye_said.wait_for(lock, seconds(grace_s), complete);
    s.ended = true;
  }
  s.control.inbox().close();
  if (s.inbox_thread.joinable()) s.inbox_thread.join();
  return all;
}

std::vector<Answer> MainController::State::ask_all(Aspect aspect, const char* what) {
  std::vector<Answer> all;
  int32_t node = 0;
  for (std::optional<Answer>& answer : inspection.ask(aspect, kAnswerWait)) {
    if (answer) {
      all.push_back(std::move(*answer));
    } else if (!inspection.is_lost(node)) {
      throw RuntimeFault(std::string("[") + what + "] node " + std::to_string(node) + " doesn't answer");
    }
    ++node;
  }
  return all;
}

void MainController::State::finish_timeline(bool in_order) {
  try {
    timeline->finish(inspection, node_names(hellos), in_order ? kAnswerWait : kFailedAnswerWait);
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
}

SpanLog* MainController::add_trace_track(const std::string& name) {
  return state_->timeline ? &state_->timeline->add_track(name) : nullptr;
}

std::string MainController::memory_report(const TensorNames& names) {
  constexpr size_t kMost = 12;
  std::string text;
  for (const Answer& answer : state_->ask_all(Aspect::kMemory, "memory_report")) {
    for (const DeviceMemory& device : answer.memory)
      text += "node " + std::to_string(answer.node) + " " + state_->ledger.describe_memory(device, kMost, names) + "\n";
  }
  return text;
}

double MainController::State::cpu_s() {
  double total_s = thread_cpu_s(inbox_thread.native_handle());
  std::lock_guard lock(mutex);
  for (const auto& [link, executor] : executors) total_s += executor->cpu_s();
  return total_s + ended_cpu_s;
}

void MainController::start_profile() {
  state_->ask_all(Aspect::kStartProfile, "start_profile");
  state_->profile_began_cpu_s.store(state_->cpu_s());
}

Profile MainController::profile() {
  const double cpu_s = state_->cpu_s() - state_->profile_began_cpu_s.load();
  Profile profile =
      summarize_profile(state_->ask_all(Aspect::kProfile, "profile"), state_->binding.num_devices(),
                        [this](GraphId graph, uint32_t spec) { return state_->ledger.spec_of(graph, spec); });
  profile.controller_cpu_s = cpu_s;
  return profile;
}

bool MainController::is_simulated() const { return state_->options.device == "null"; }

const DeviceBinding& MainController::binding() const { return state_->binding; }

void MainController::attach(std::shared_ptr<GraphLink> link) {
  State& s = *state_;
  GraphLink* key = link.get();
  PassList passes = make_passes(s.options.passes, s.options.compute_streams, link->id);
  if (s.options.explain) {
    passes.insert(passes.begin(), make_print_pass("before the passes", s.binding));
    passes.push_back(make_print_result_pass("after the passes", s.binding));
  }
  SpanLog* spans = add_trace_track("executor of graph " + std::to_string(link->id));
  auto executor = std::make_unique<EagerGraphExecutor>(std::move(link), s.ledger, s.sequencer, s.credits,
                                                       std::move(passes), s.options.templates, spans);
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
    state_->ended_cpu_s += executor->cpu_s();
  }
  executor.reset();  // waits
}

RuntimeStats MainController::stats() {
  RuntimeStats stats = state_->ledger.stats();
  stats.control_messages = state_->control.messages_sent();
  stats.control_bytes = state_->control.bytes_sent();
  return stats;
}

TemplateStats MainController::template_stats() { return state_->ledger.template_stats(); }

void MainController::add_device_memory(ClientStats& stats) { state_->ledger.add_device_memory(stats); }

void MainController::reset_peak_bytes() {
  state_->sequencer.send_to_all(encode_reset_peak());
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
