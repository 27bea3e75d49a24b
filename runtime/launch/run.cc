#include "runtime/launch/run.h"

#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "io/operators.h"
#include "ops/operator_list.h"
#include "runtime/base/log.h"
#include "runtime/controller/main_controller.h"
#include "runtime/launch/job.h"
#include "runtime/launch/signals.h"

namespace dtorch {

namespace {

using Program = std::function<int(Client&, int, char**)>;

// For the nodes to say goodbye; with what Job::finish takes, everything ends within 10 s (I10).
constexpr double kGoodbyeGraceS = 4;

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that isn't a std::exception";
  }
}

void print_error(const std::string& what) { std::cerr << "error: " + what + "\n" << std::flush; }

// Rank of this process before MPI is up, as launchers tell it; 0 alone.
bool is_first_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* rank = std::getenv(name);
    if (rank != nullptr && *rank != '\0') return std::string_view(rank) == "0";
  }
  return true;
}

// Runs the program as a client of `controller`. Returns its exit code; what goes wrong is thrown, and has failed
// everything then, so that nothing waits for work that nobody will read.
int run_program(const std::shared_ptr<MainController>& controller, const RuntimeOptions& options,
                const Program& program, int argc, char** argv) {
  controller->start();
  log_debug("{}", controller->describe_nodes());
  Client client(controller);
  client.set_explain(options.explain);
  client.set_check_replicas(options.check_replicas);
  try {
    const int exit_code = program(client, argc, argv);
    client.close();
    return exit_code;
  } catch (...) {
    controller->fail(std::current_exception());
    throw;
  }
}

int run_job(Job& job, const RuntimeOptions& options, const Program& program, int argc, char** argv) {
  auto controller = std::make_shared<MainController>(job.control(), job.num_nodes(), options);
  std::optional<StopSignals> signals;
  int exit_code = 0;
  std::string reason = "done";
  try {
    signals.emplace(*controller);
    job.start([&controller](std::exception_ptr failure) { controller->fail(std::move(failure)); });
    exit_code = run_program(controller, options, program, argc, argv);
  } catch (...) {
    // What failed the job first is the cause; what the program made of it comes after.
    const std::exception_ptr first = controller->failure();
    reason = text_of(first ? first : std::current_exception());
    exit_code = 1;
    print_error(reason);
  }
  if (signals) signals->program_ended();
  bool clean = controller->shutdown(exit_code, reason, kGoodbyeGraceS);
  if (!clean && exit_code == 0) {
    exit_code = 1;
    print_error("not every node ended when it was told to");
  }
  clean = job.finish(clean, exit_code);
  return clean || exit_code != 0 ? exit_code : 1;
}

// What the table of options has and this version hasn't. Throws UserError.
void check_available(const RuntimeOptions& options) {
  if (options.device != "cpu") throw UserError("--device " + options.device + ": this build has cpu devices only");
  if (!options.trace.empty()) throw UserError("--trace: this version writes no timeline yet");
  if (options.fast_reduce) throw UserError("--fast-reduce: this version has ordered reductions only");
}

int run_any(int argc, char** argv, const Program& program) {
  RuntimeOptions options;
  try {
    options = parse_runtime_options(argc, argv);
    set_log_level(options.log_level);
  } catch (const std::exception& error) {
    if (is_first_rank()) print_error(error.what());
    return 1;
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
    register_builtin_operators();
    register_io_operators();
    if (launched_with_mpi()) {
      session = MpiSession::start(&argc, &argv);
      if (session->rank() > 0) return run_node_rank(std::move(session));
      job = make_mpi_job(std::move(session));
    } else {
      job = make_embedded_job(options.nodes);
    }
    return run_job(*job, options, program, argc, argv);
  } catch (const std::exception& error) {
    if (is_first_rank()) print_error(error.what());
    return 1;
  }
}

}  // namespace

int run(int argc, char** argv, const std::function<void(Client&)>& program) {
  return run_any(argc, argv, [&](Client& client, int, char**) {
    program(client);
    return 0;
  });
}

int run(int argc, char** argv, const std::function<int(Client&, int argc, char** argv)>& program) {
  return run_any(argc, argv, program);
}

}  // namespace dtorch
