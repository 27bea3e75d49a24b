#include "runtime/launch/run.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "io/checkpoint.h"
#include "io/operators.h"
#include "mesh/mesh_kinds.h"
#include "ops/operator_list.h"
#include "runtime/base/freed_memory.h"
#include "runtime/base/log.h"
#include "runtime/comm/launcher.h"
#include "runtime/controller/main_controller.h"
#include "runtime/gpu/cuda_library.h"
#include "runtime/launch/job.h"
#include "runtime/launch/metrics.h"
#include "runtime/launch/metrics_server.h"
#include "runtime/launch/result_file.h"
#include "runtime/launch/signals.h"
#include "runtime/worker/async_backend.h"

namespace dtorch {

namespace {

using Program = std::function<int(Client&, int, char**)>;

// For the nodes to say goodbye; with what Job::finish takes, everything ends within 10 s (I10).
constexpr double kGoodbyeGraceS = 4;

void print_error(const std::string& what) { std::cerr << "error: " + what + "\n" << std::flush; }

// A checkpoint that is being written belongs to the program, also to one that has failed: what it holds was good.
void finish_last_save() {
  try {
    checkpoint::wait();
  } catch (const std::exception& error) {
    log_error("{}", error.what());  // the program's own failure is the job's
  }
}

// Gives this thread a log for the timeline, while it lives.
class TraceThread {
 public:
  explicit TraceThread(SpanLog* log) { thread_span_log = log; }
  ~TraceThread() { thread_span_log = nullptr; }
  TraceThread(const TraceThread&) = delete;
  TraceThread& operator=(const TraceThread&) = delete;
};

// Runs the program as a client of `controller`. Returns its exit code; what goes wrong is thrown, and has failed
// everything then, so that nothing waits for work that nobody will read.
int run_program(const std::shared_ptr<MainController>& controller, const RuntimeOptions& options,
                const Program& program, int argc, char** argv) {
  controller->start();
  const TraceThread traced(controller->add_trace_track("client"));
  log_debug("{}", controller->describe_nodes());
  Client client(controller);
  client.set_explain(options.explain);
  client.set_check_replicas(options.check_replicas);
  try {
    const int exit_code = program(client, argc, argv);
    checkpoint::wait();
    client.close();
    return exit_code;
  } catch (...) {
    finish_last_save();
    controller->fail(std::current_exception());
    throw;
  }
}

int run_job(Job& job, const RuntimeOptions& options, const Program& program, int argc, char** argv) {
  std::optional<NoCudaMeshes> no_cuda_meshes;
  if (options.device == "cpu") no_cuda_meshes.emplace(describe_cuda);
  auto controller = std::make_shared<MainController>(job.control(), job.num_nodes(), options);
  std::optional<JobSignals> signals;
  std::optional<MetricsServer> metrics;
  JobResult result;
  try {
    signals.emplace(*controller, options.stop_after_s, options.deadline_s);
    if (options.metrics_port >= 0) {
      metrics.emplace(options.metrics_address, static_cast<uint16_t>(options.metrics_port),
                      [&controller] { return metrics_text(*controller); });
      log_info("metrics at {}, port {}", options.metrics_address, metrics->port());
    }
    job.start({.on_failure = [&controller](std::exception_ptr failure) { controller->fail(std::move(failure)); },
               .on_node_lost = [&controller](int32_t node,
                                             const std::string& cause) { controller->node_lost(node, cause); }});
    result = result_of_code(run_program(controller, options, program, argc, argv));
  } catch (...) {
    // What failed the job first is the cause; what the program made of it comes after.
    const std::exception_ptr failure = controller->failure();
    const std::exception_ptr first = failure ? failure : std::current_exception();
    result = result_of(first);
    print_error(result.reason);
    write_result(options.result, result);  // nodes that end by themselves may end this process before the rest is done
  }
  if (signals) signals->program_ended();
  metrics.reset();
  bool clean = controller->shutdown(result.code, result.reason.empty() ? "done" : result.reason, kGoodbyeGraceS);
  if (!clean && result.code == kDone) {
    result = {kFailed, "failed", "not every node ended when it was told to"};
    print_error(result.reason);
  }
  // What follows may end the process.
  write_result(options.result, result);
  clean = job.finish(clean, result.code);
  return clean || result.code != kDone ? result.code : kFailed;
}

// What the table of options has and this version hasn't. Throws UserError.
void check_available(const RuntimeOptions& options) {
  check_device(options.device, /*has_nodes=*/!launched_with_mpi());
  if (options.device == "null" && launched_with_mpi())
    throw UserError("--device null plays all nodes (--nodes) in one process; start it without mpirun");
  if (options.recover && options.heartbeat_timeout_s == 0)
    throw UserError("--recover needs a --heartbeat-timeout above 0: nobody would notice that a node is lost");
}

// As many as the nodes that aren't spare have GPUs, when nobody says how many.
void count_devices(RuntimeOptions& options, int64_t num_accelerators, int32_t num_nodes) {
  if (options.devices_set || num_accelerators == 0) return;
  options.devices = num_accelerators / num_nodes * std::max(1, num_nodes - options.spares);
}

MpiOptions mpi_options(const RuntimeOptions& options) {
  constexpr double kSilenceS = 5;
  const double silence_s = options.heartbeat_timeout_s >= 0 ? options.heartbeat_timeout_s
                           : options.recover                ? kSilenceS
                                                            : 0;
  // Rank 0 computes nothing: it needs no GPU, nor what drives one.
  return {.recover = options.recover,
          .silence_s = silence_s,
          .accelerators = is_first_rank() ? 0 : num_accelerators(options.device)};
}

// As far as it can be told before the options are read.
std::string result_path_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const std::string path = take_result_option(words);
  const char* const given = std::getenv("DTORCH_RESULT");
  return !path.empty() || given == nullptr ? path : given;
}

// A program that takes no words of its own may look at its command line elsewhere, so that this is no error.
void warn_of_misspelt_options(int argc, char** argv) {
  const std::vector<std::string> names = runtime_option_names();
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string_view(argv[i]).find('='));
    const std::string near = word.starts_with("--") ? nearest_word(word, names) : "";
    if (!near.empty() && near != word) log_warn("{} is no option of DTorch; did you mean {}?", word, near);
  }
}

int run_any(int argc, char** argv, const Program& program) {
  RuntimeOptions options;
  const std::string result_path = result_path_of(argc, argv);
  try {
    keep_early_stop_signal();
    options = parse_runtime_options(argc, argv);
    set_log_level(options.log_level);
    if (!launched_with_mpi())
      options.slow_node_factor = 0;  // nodes of one process share its cores: which is slow is chance
    if (is_first_rank()) clear_result(options.result);
  } catch (const std::exception& error) {
    if (is_first_rank()) {
      print_error(error.what());
      // Also of a command line that can't be read, so that nobody takes an earlier job's result for this one's.
      write_result(result_path, result_of(std::current_exception()));
    }
    return kFailed;
  }
  if (options.help || options.version) {
    if (is_first_rank()) {
      std::cout << (options.help ? format_runtime_options() : std::string("dtorch ") + DTORCH_VERSION + "\n");
    }
    return 0;
  }
  std::unique_ptr<MpiSession> session;
  std::unique_ptr<Job> job;
  try {
    check_available(options);
    keep_freed_memory();
    register_builtin_operators();
    register_io_operators();
    if (launched_with_mpi()) {
      session = MpiSession::start(&argc, &argv, mpi_options(options));
      if (session->rank() > 0) return run_node_rank(std::move(session), options.device);
      count_devices(options, session->num_accelerators(), session->num_nodes());
      job = make_mpi_job(std::move(session));
    } else {
      count_devices(options, int64_t{num_accelerators(options.device)} * options.nodes, options.nodes);
      job = options.device == "null" ? make_simulated_job(options.nodes)
                                     : make_embedded_job(options.nodes, options.device);
    }
    return run_job(*job, options, program, argc, argv);
  } catch (const std::exception& error) {
    if (is_first_rank()) {
      print_error(error.what());
      write_result(options.result, result_of(std::current_exception()));
    }
    return kFailed;
  }
}

}  // namespace

int run(int argc, char** argv, const std::function<void(Client&)>& program) {
  return run_any(argc, argv, [&](Client& client, int left, char** words) {
    warn_of_misspelt_options(left, words);
    program(client);
    return 0;
  });
}

int run(int argc, char** argv, const std::function<int(Client&, int argc, char** argv)>& program) {
  return run_any(argc, argv, program);
}

}  // namespace dtorch
