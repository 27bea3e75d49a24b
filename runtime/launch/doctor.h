// Looks at a job before it does anything: every rank tells what it sees, rank 0 compares. Needs neither operators nor
// the control channel, so it works where a job can't start.
#pragma once
#include <string>

#include "runtime/base/options_table.h"

namespace dtorch {

// Prints a line a rank and then "problem: " with one sentence for each thing that is wrong: ranks, versions, cores,
// networks, shared memory, GPUs, environment. `folder`, unless empty, must be one that all ranks share and can write
// to. Returns 0 when all is well, else 1, on every rank that was started rightly. Collective over the ranks of mpirun
// or srun; ends the process with 1 when not all of them take part within a minute. Call it instead of dtorch::run.
int check_job(const RuntimeOptions& options, const std::string& folder);

// The GPUs that this process sees, a line each: memory, place, cores near it, links; or one line that says why there
// are none.
std::string describe_gpus_here();

}  // namespace dtorch
