// What ranks that were killed leave on a host, and how it is removed.
#pragma once
#include <string>
#include <vector>

#include "runtime/launch/process.h"

namespace dtorch {

// Set for all ranks of a supervised job: "ID ATTEMPT".
inline constexpr const char* kSupervisedVariable = "DTORCH_SUPERVISED";

// This user's processes on this host that are ranks of the supervised job `id`, whatever the attempt.
std::vector<Process> supervised_processes(const std::string& id);
// Those of them on this host that are rank 0 (a wrapper of it as well), by what Open MPI or PMIx call it.
std::vector<Process> first_rank_processes(const std::string& id);
// Direct and indirect children of this process, without `others` and what these have started.
std::vector<Process> descendants_of_this_process(const std::vector<Process>& others = {});
// Lets these processes end by themselves for `grace_s`, then ends them at once and waits until they are gone, at most
// `limit_s`. Returns the number that had to be ended; one that is named twice counts once.
int end_processes(const std::vector<Process>& processes, double grace_s, double limit_s);
// Open MPI's files in shared memory that are this user's and that no process has mapped any more. Returns their number.
// Processes in containers that share the folder but not this one's process numbers aren't seen.
int remove_unused_segments(const std::string& folder = "/dev/shm");

}  // namespace dtorch
