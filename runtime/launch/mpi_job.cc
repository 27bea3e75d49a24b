// MPI ranks: rank 0's side (job.h) and the Sub-Controllers'.
#include <atomic>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/launch/job.h"
#include "runtime/launch/launcher_watch.h"
#include "runtime/launch/rank_report.h"
#include "runtime/launch/result_file.h"
#include "runtime/launch/signals.h"
#include "runtime/worker/async_backend.h"
#include "runtime/worker/sub_controller.h"

namespace dtorch {

namespace {

constexpr auto kCommGrace = std::chrono::seconds(1);
constexpr double kFinalizeLimitS = 3;

std::vector<ProgressSource*> sources_of(MpiSession& session) {
  std::vector<ProgressSource*> sources{&session.control_progress()};
  if (ProgressSource* liveness = session.liveness()) sources.push_back(liveness);
  return sources;
}

class MpiJob final : public Job {
 public:
  explicit MpiJob(std::unique_ptr<MpiSession> session) : session_(std::move(session)) {}

  ControlEndpoint& control() override { return session_->control(); }
  int32_t num_nodes() const override { return session_->num_nodes(); }

  void start(Watchers watchers) override {
    session_->set_on_lost(std::move(watchers.on_node_lost));
    comm_ = std::make_unique<CommThread>(session_->make_transport(), sources_of(*session_), watchers.on_failure);
    watch_ = std::make_unique<LauncherWatch>([on_failure = std::move(watchers.on_failure)] {
      on_failure(std::make_exception_ptr(PeerLost("the launcher (mpirun) is gone")));
    });
  }

  bool finish(bool clean, int exit_code) override {
    watch_.reset();
    if (comm_) clean &= comm_->stop_within(kCommGrace);
    comm_.reset();
    session_->finish(clean, exit_code, kFinalizeLimitS);
    return clean;
  }

 private:
  std::unique_ptr<MpiSession> session_;
  std::unique_ptr<CommThread> comm_;
  std::unique_ptr<LauncherWatch> watch_;
};

// Devices and the comm thread take turns then, which costs milliseconds for every message.
void warn_when_tied_to_one_core() {
  const RankReport here = look_here();
  if (here.cores.size() == 1 && here.machine_cores > 1) {
    log_warn("this rank may use core {} of {} only: start mpirun with --bind-to none, srun with --cpu-bind=none",
             here.cores.front(), here.machine_cores);
  }
}

// A node whose devices don't start says so instead of hello, and waits for the end that follows.
int wait_for_end(int32_t node, ControlEndpoint& control, const std::string& problem) {
  control.send(kController, encode(ErrorReport{.epoch = 1, .node = node, .device = -1, .message = problem}));
  while (const std::optional<Envelope> envelope = control.inbox().pop()) {
    if (envelope->message.kind != MessageKind::kShutdown) continue;
    control.send(kController, encode_goodbye(node));
    return decode_shutdown(envelope->message).exit_code;
  }
  return kPeerLost;
}

}  // namespace

std::unique_ptr<Job> make_mpi_job(std::unique_ptr<MpiSession> session) {
  return std::make_unique<MpiJob>(std::move(session));
}

int run_node_rank(std::unique_ptr<MpiSession> session, const std::string& device) {
  const int32_t node = session->node();
  set_log_label("node " + std::to_string(node));
  warn_when_tied_to_one_core();
  const IgnoreJobSignals ignore;
  ControlEndpoint& control = session->control();
  // Ends the service as if the controller had asked for it.
  const auto end_service = [&control](const std::string& reason) {
    log_error("{}", reason);
    control.inbox().push({kController, encode(Shutdown{kPeerLost, reason})});
  };
  // Rank 0 needn't wait for this process to end when it has said goodbye.
  std::atomic<bool> has_ended{false};
  session->set_on_lost([&](int32_t, const std::string& cause) {
    if (!has_ended.load()) end_service(cause);
  });
  int exit_code = kPeerLost;
  bool clean = false;
  {
    CommThread comm(session->make_transport(), sources_of(*session), [&](std::exception_ptr failure) {
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception& error) {
        end_service(error.what());
      }
    });
    const LauncherWatch watch([&] { end_service("the launcher (mpirun) is gone, and nobody said what to do"); });
    std::optional<SubController> sub_controller;
    std::string problem;
    try {
      sub_controller.emplace(node, control, comm, make_backend(device, false));
    } catch (const std::exception& error) {
      problem = error.what();
    }
    exit_code = sub_controller ? sub_controller->run() : wait_for_end(node, control, problem);
    has_ended.store(true);
    clean = comm.stop_within(kCommGrace) && exit_code != kPeerLost;
  }
  session->finish(clean, exit_code, kFinalizeLimitS);
  return exit_code;
}

}  // namespace dtorch
