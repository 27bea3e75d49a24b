// Starts a job with mpirun or srun and starts it again from its last checkpoint when it was lost: a rank or a node
// died, a kernel failed, a deadline passed. One process outside the job; it outlives every rank, rank 0 as well, and
// adopts orphans. Before anything else, and before other threads, its main calls block_supervisor_signals()
// (child_wait.h).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dtorch {

struct SupervisedJob {
  std::vector<std::string> command;  // the program with its arguments
  std::vector<std::string>
      probe_command;               // run alone on every host: fails where the program can't run; removes leftovers
  std::vector<std::string> hosts;  // empty: all ranks on this machine
  int64_t ranks = 0;               // without hosts
  int64_t spares = 0;              // of the hosts, that are used only when others are lost
  // The job goes on without a rank that is lost: the launcher must let it. Spare hosts are the job's own then, each a
  // rank that holds no devices until it must (it is told by DTORCH_SPARES); without hosts, as many more ranks.
  bool recover = false;
  std::string launcher = "mpirun";  // or "srun"
  std::vector<std::string> launcher_options;
  std::vector<std::string> wrapper;  // before the program on every rank (a container)
  int64_t retries = 3;               // times in a row that it is started again without progress before it gives up
  double stop_after_s = 0;           // 0: never; then as after SIGUSR1
  // Where the job writes how it ended (it is told by DTORCH_RESULT); read and removed, so nobody else's. A job that
  // leaves nothing there is done when the launcher returns 0, and lost when that says nothing (`recover`).
  std::string result;
  std::string id;  // marks the job's processes
  // How far what is saved has come; -1: nothing is. Compared after every attempt.
  std::function<int64_t()> progress;
};

// How it ended. `code`: the job's (result_file.h), 78 when it ended without a word.
struct SupervisedEnd {
  int code = 0;
  std::string status, reason;
  int64_t attempts = 0;
  int64_t progress = -1;
};

// Blocks until the job is done (0), has refused its arguments (1), gave way after SIGUSR1, SIGTERM, SIGHUP, SIGQUIT,
// SIGINT or the time (77; a second SIGINT ends it at once), or was tried in vain. A job that was asked to stop and
// fails instead ends with its own code, unless a peer was lost or more is saved than before (77). SIGUSR2 goes to the
// launcher. Says on stderr what happens. K hosts run K + 1 ranks: 0 and 1 on the first. mpirun is never waited for when
// the result is there. Between attempts it ends what is left of the job's processes and removes what they left in
// shared memory. Hosts that don't answer are left out, before the first attempt only while as many as the job wants are
// left; a host on which the program doesn't start refuses the job then. What this process started before is left alone.
// When it is killed, the launcher gets SIGTERM.
SupervisedEnd supervise(const SupervisedJob& job);

// Of the Slurm job that this process is part of, in order; empty outside of one. Throws RuntimeFault when scontrol
// fails.
std::vector<std::string> slurm_hosts();

}  // namespace dtorch
