#include "runtime/comm/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/launcher.h"
#include "runtime/comm/liveness.h"
#include "runtime/comm/mpi_control.h"
#include "runtime/comm/mpi_error.h"
#include "runtime/comm/mpi_transport.h"

namespace dtorch {
namespace {

constexpr int kPeerLost = 78;
constexpr double kAbortLimitS = 2;
// Epochs use them in turn (mpi_transport.h).
constexpr int kDataComms = 8;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kPatience = 5;
#else
constexpr double kPatience = 1;
#endif
constexpr double kLongestSilenceS = 1e8;
constexpr double kControllerPatience = 3;  // of a node with the controller, in times of the controller's with it

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

  void agree_on_options();
  std::vector<PeerProcess> find_local_ranks() const;
  void end_without_mpi(int exit_code, double limit_s);

  MpiOptions options;
  int64_t num_accelerators = 0;
  MPI_Comm control_comm = MPI_COMM_NULL;
  std::vector<MPI_Comm> data_comms;
  int rank = 0;
  int num_ranks = 1;
  std::unique_ptr<MpiControl> control;
  std::unique_ptr<Liveness> liveness;
  bool finished = false;
};

std::unique_ptr<MpiSession> MpiSession::start(int* argc, char*** argv, MpiOptions options) {
  // Control messages of 4 to 16 KiB on one host take 1.9 us with these instead of 8.6 us; the user's own setting wins.
  set_default("OMPI_MCA_btl_vader_eager_limit", "32768");
  set_default("OMPI_MCA_btl_vader_max_send_size", "65536");
  // With more ranks than cores every MPI_Test that finds nothing would give the core away, for as long as others like
  // to have it. The comm thread, which alone calls MPI, sleeps by itself.
  set_default("OMPI_MCA_mpi_yield_when_idle", "0");
  if (options.recover) {
    // What was sent to a lost rank holds its place in the sender's shared memory for ever. The 4 MiB of other jobs are
    // used up by some seventy messages, and then nothing leaves the sender any more. Pages count only when they are
    // used.
    set_default("OMPI_MCA_btl_vader_segment_size", "67108864");
    set_default("OMPI_MCA_btl_vader_free_list_max", "2048");
  }
  check_launcher();
  int provided = MPI_THREAD_SINGLE;
  DTORCH_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided));
  std::unique_ptr<MpiSession> session(new MpiSession(std::make_unique<State>()));
  State& s = *session->state_;
  s.options = options;
  try {
    s.connect(provided);
  } catch (const MpiError& error) {
    // The other ranks may be waiting for this one, and a launcher needn't care that it ends.
    std::cerr << "error: rank " + std::to_string(s.rank) + " can't join the others: " + error.what() + "\n";
    MPI_Abort(MPI_COMM_WORLD, 1);
    throw;
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
    const int64_t asked = ranks_asked_for();
    DTORCH_MPI(MPI_Finalize());
    throw RuntimeFault(no_pmi(asked));
  }
  if (provided < MPI_THREAD_SERIALIZED)
    throw RuntimeFault("this MPI can't be called from another thread than the first");
  DTORCH_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &control_comm));
  agree_on_options();
  data_comms.resize(options.recover ? kDataComms : 1);
  for (MPI_Comm& comm : data_comms) {
    DTORCH_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    DTORCH_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  }
  DTORCH_MPI(MPI_Comm_set_errhandler(control_comm, MPI_ERRORS_RETURN));
  int* tag_limit = nullptr;
  int found = 0;
  DTORCH_MPI(MPI_Comm_get_attr(data_comms[0], MPI_TAG_UB, &tag_limit, &found));
  if (!found || *tag_limit < static_cast<int>(Transport::kMaxTag - 1)) {
    throw RuntimeFault("this MPI has message tags up to " + std::to_string(found ? *tag_limit : 0) +
                       " only; 30 bits are needed");
  }
  control = std::make_unique<MpiControl>(control_comm);
  if (options.silence_s <= 0) return;
  const auto time = [&](double factor) {
    return std::chrono::duration_cast<Liveness::Clock::duration>(
        std::chrono::duration<double>(std::min(options.silence_s, kLongestSilenceS) * kPatience * factor));
  };
  liveness = std::make_unique<Liveness>(*control, rank - 1, num_ranks - 1,
                                        Liveness::Limits{time(1), time(kControllerPatience)}, find_local_ranks());
}

// Rank 0's count: others may have been started with other environment variables.
void MpiSession::State::agree_on_options() {
  std::array<double, 2> numbers{options.recover ? 1.0 : 0.0, options.silence_s};
  DTORCH_MPI(MPI_Bcast(numbers.data(), static_cast<int>(numbers.size()), MPI_DOUBLE, 0, MPI_COMM_WORLD));
  options.recover = numbers[0] != 0;
  options.silence_s = numbers[1];
  const int64_t own = rank == 0 ? 0 : options.accelerators;
  DTORCH_MPI(MPI_Allreduce(&own, &num_accelerators, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  if (!options.recover || number_in("OMPI_COMM_WORLD_SIZE") < 0 || number_in("OMPI_MCA_orte_enable_recovery") == 1)
    return;
  DTORCH_MPI(MPI_Finalize());
  throw RuntimeFault("--recover needs mpirun --enable-recovery: without it mpirun ends all ranks when one is lost");
}

// Those whose process numbers mean something here.
std::vector<PeerProcess> MpiSession::State::find_local_ranks() const {
  struct Place {
    int64_t id = 0;
    std::array<char, 120> space{};
  };
  Place here{.id = ::getpid()};
  process_space().copy(here.space.data(), here.space.size() - 1);
  std::vector<Place> all(static_cast<size_t>(num_ranks));
  DTORCH_MPI(MPI_Allgather(&here, sizeof here, MPI_BYTE, all.data(), sizeof here, MPI_BYTE, MPI_COMM_WORLD));
  std::vector<PeerProcess> found;
  for (int other = 0; other < num_ranks; ++other) {
    const Place& place = all[static_cast<size_t>(other)];
    if (other != rank && here.space[0] != '\0' && place.space == here.space)
      found.emplace_back(other - 1, static_cast<pid_t>(place.id));
  }
  return found;
}

// The guard outlives this call, and ends with the process.
void MpiSession::State::end_without_mpi(int exit_code, double limit_s) {
  static const Guard* const last = new Guard(limit_s, exit_code);
  static_cast<void>(last);
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
int64_t MpiSession::num_accelerators() const { return state_->num_accelerators; }
ControlEndpoint& MpiSession::control() { return *state_->control; }
ProgressSource& MpiSession::control_progress() { return *state_->control; }
ProgressSource* MpiSession::liveness() { return state_->liveness.get(); }
void MpiSession::set_on_lost(std::function<void(int32_t, const std::string&)> on_lost) {
  if (state_->liveness) state_->liveness->set_on_lost(std::move(on_lost));
}
std::unique_ptr<Transport> MpiSession::make_transport() {
  if (state_->rank == 0) return nullptr;
  MpiTransport::OnFailure on_failure;
  if (state_->options.recover && state_->liveness)
    on_failure = [&s = *state_](int32_t node, const std::string& what) { s.liveness->on_failure(node, what); };
  return std::make_unique<MpiTransport>(state_->data_comms, size_t{1} << 30, std::move(on_failure));
}

void MpiSession::finish(bool clean, int exit_code, double limit_s) {
  State& s = *state_;
  if (s.finished) return;
  s.finished = true;
  const int code = exit_code != 0 ? exit_code : kPeerLost;
  // A node whose copies for others are still under way has ended well, too.
  if (s.options.recover && s.rank > 0 && !clean) return s.end_without_mpi(exit_code, limit_s);
  if (s.options.recover && s.control->has_lost() && clean) {
    if (s.rank > 0 || s.liveness->all_lost_are_gone()) return s.end_without_mpi(exit_code, limit_s);
    const Guard guard(kAbortLimitS, exit_code);
    DTORCH_MPI(MPI_Abort(MPI_COMM_WORLD, exit_code));
    return;
  }
  if (!clean) {
    const Guard guard(kAbortLimitS, code);
    DTORCH_MPI(MPI_Abort(MPI_COMM_WORLD, code));
    return;
  }
  // With recovery, others may have ended without this.
  const Guard guard(limit_s, s.options.recover ? exit_code : code);
  s.liveness.reset();
  s.control.reset();
  // Freeing them would be one more collective; MPI_Finalize does it.
  DTORCH_MPI(MPI_Finalize());
}

}  // namespace dtorch
