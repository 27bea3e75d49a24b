#include "runtime/comm/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/comm/mpi_control.h"
#include "runtime/comm/mpi_error.h"
#include "runtime/comm/mpi_transport.h"

namespace dtorch {
namespace {

constexpr int kPeerLost = 78;
constexpr double kAbortLimitS = 2;

// A non-negative number in the environment, or -1.
long number_in(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 ? value : -1;
}

// Ends the process when what is done under it takes longer than `limit_s`.
class Guard {
 public:
  Guard(double limit_s, int exit_code) {
    thread_ = std::thread([this, limit_s, exit_code] {
      std::unique_lock lock(mutex_);
      if (wakeup_.wait_for(lock, std::chrono::duration<double>(limit_s), [this] { return done_; })) return;
      ::_exit(exit_code);  // lint: allow
    });
  }
  ~Guard() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    wakeup_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wakeup_;
  bool done_ = false;
  std::thread thread_;
};

void set_default(const char* name, const char* value) {
  if (setenv(name, value, 0) != 0) throw RuntimeFault(std::string("can't set ") + name);
}

}  // namespace

struct MpiSession::State {
  // After MPI_Init_thread.
  void connect(int provided);

  MPI_Comm control_comm = MPI_COMM_NULL;
  MPI_Comm data_comm = MPI_COMM_NULL;
  int rank = 0;
  int num_ranks = 1;
  std::unique_ptr<MpiControl> control;
  bool finished = false;
};

bool launched_with_mpi() {
  for (const char* size : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const long value = number_in(size); value >= 0) return value > 1;
  }
  const long tasks = number_in("SLURM_STEP_NUM_TASKS");
  if (number_in("SLURM_PROCID") >= 0 && tasks >= 0) return tasks > 1;
  return number_in("PMIX_RANK") >= 0;
}

std::unique_ptr<MpiSession> MpiSession::start(int* argc, char*** argv) {
  // Control messages of 4 to 16 KiB on one host take 1.9 us with these instead of 8.6 us; the user's own setting wins.
  set_default("OMPI_MCA_btl_vader_eager_limit", "32768");
  set_default("OMPI_MCA_btl_vader_max_send_size", "65536");
  int provided = MPI_THREAD_SINGLE;
  DTORCH_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided));
  std::unique_ptr<MpiSession> session(new MpiSession(std::make_unique<State>()));
  State& s = *session->state_;
  try {
    s.connect(provided);
  } catch (const std::exception&) {
    // Whoever catches this says why before the job ends; MPI_Abort would be first.
    s.finished = true;
    throw;
  }
  return session;
}

void MpiSession::State::connect(int provided) {
  DTORCH_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  DTORCH_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  DTORCH_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  DTORCH_MPI(MPI_Comm_size(MPI_COMM_WORLD, &num_ranks));
  if (num_ranks == 1) {
    const long asked = number_in("SLURM_STEP_NUM_TASKS");
    DTORCH_MPI(MPI_Finalize());
    throw RuntimeFault(
        (asked > 1 ? "asked for " + std::to_string(asked) + " ranks, I see 1" : "MPI was started with one rank") +
        std::string(": srun without a matching PMI? (try srun --mpi=pmix, or mpirun)"));
  }
  if (provided < MPI_THREAD_SERIALIZED)
    throw RuntimeFault("this MPI can't be called from another thread than the first");
  DTORCH_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &control_comm));
  DTORCH_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &data_comm));
  for (MPI_Comm comm : {control_comm, data_comm}) DTORCH_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  int* tag_limit = nullptr;
  int found = 0;
  DTORCH_MPI(MPI_Comm_get_attr(data_comm, MPI_TAG_UB, &tag_limit, &found));
  if (!found || *tag_limit < static_cast<int>(Transport::kMaxTag - 1)) {
    throw RuntimeFault("this MPI has message tags up to " + std::to_string(found ? *tag_limit : 0) +
                       " only; 30 bits are needed");
  }
  control = std::make_unique<MpiControl>(control_comm);
}

MpiSession::MpiSession(std::unique_ptr<State> state) : state_(std::move(state)) {}

MpiSession::~MpiSession() {
  try {
    finish(false, 1);
  } catch (const std::exception&) {
    // MPI_Abort has failed; there is nothing left to end the job with but the end of this process, which follows.
    state_->finished = true;
  }
}

int MpiSession::rank() const { return state_->rank; }
int MpiSession::num_ranks() const { return state_->num_ranks; }
ControlEndpoint& MpiSession::control() { return *state_->control; }
ProgressSource& MpiSession::control_progress() { return *state_->control; }
std::unique_ptr<Transport> MpiSession::make_transport() {
  if (state_->rank == 0) return nullptr;
  return std::make_unique<MpiTransport>(state_->data_comm);
}

void MpiSession::finish(bool clean, int exit_code, double limit_s) {
  State& s = *state_;
  if (s.finished) return;
  s.finished = true;
  const int code = exit_code != 0 ? exit_code : kPeerLost;
  if (!clean) {
    const Guard guard(kAbortLimitS, code);
    DTORCH_MPI(MPI_Abort(MPI_COMM_WORLD, code));
    return;
  }
  const Guard guard(limit_s, code);
  s.control.reset();
  // Freeing them would be one more collective; MPI_Finalize does it.
  DTORCH_MPI(MPI_Finalize());
}

}  // namespace dtorch
