// MPI ranks: rank 0's side (job.h) and the Sub-Controllers'.
#include <csignal>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/launch/job.h"
#include "runtime/launch/launcher_watch.h"
#include "runtime/launch/signals.h"
#include "runtime/worker/sub_controller.h"

namespace dtorch {

namespace {

constexpr auto kCommGrace = std::chrono::seconds(1);
constexpr double kFinalizeLimitS = 3;

class MpiJob final : public Job {
 public:
  explicit MpiJob(std::unique_ptr<MpiSession> session) : session_(std::move(session)) {}

  ControlEndpoint& control() override { return session_->control(); }
  int32_t num_nodes() const override { return session_->num_nodes(); }

  void start(std::function<void(std::exception_ptr)> on_failure) override {
    comm_ = std::make_unique<CommThread>(session_->make_transport(),
                                         std::vector<ProgressSource*>{&session_->control_progress()}, on_failure);
    watch_ = std::make_unique<LauncherWatch>(
        [on_failure] { on_failure(std::make_exception_ptr(RuntimeFault("the launcher (mpirun) is gone"))); });
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

}  // namespace

std::unique_ptr<Job> make_mpi_job(std::unique_ptr<MpiSession> session) {
  return std::make_unique<MpiJob>(std::move(session));
}

int run_node_rank(std::unique_ptr<MpiSession> session) {
  const int32_t node = session->node();
  set_log_label("node " + std::to_string(node));
  const IgnoreStopSignals ignore;
  ControlEndpoint& control = session->control();
  // Ends the service as if the controller had asked for it.
  const auto end_service = [&control](const std::string& reason) {
    log_error("{}", reason);
    control.inbox().push({kController, encode(Shutdown{kPeerLost, reason})});
  };
  int exit_code = kPeerLost;
  bool clean = false;
  {
    CommThread comm(session->make_transport(), {&session->control_progress()}, [&](std::exception_ptr failure) {
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception& error) {
        end_service(error.what());
      }
    });
    const LauncherWatch watch([&] { end_service("the launcher (mpirun) is gone, and nobody said what to do"); });
    SubController sub_controller(node, control, comm);
    exit_code = sub_controller.run();
    clean = comm.stop_within(kCommGrace) && exit_code != kPeerLost;
  }
  session->finish(clean, exit_code, kFinalizeLimitS);
  return exit_code;
}

}  // namespace dtorch
