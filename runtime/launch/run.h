// dtorch::run: the entry of every program. Under `mpirun -np N` rank 0 runs the program and the Main-Controller, the
// other ranks are Sub-Controllers; alone (or -np 1) everything runs in one process.
#pragma once
#include <functional>

#include "runtime/client/client.h"

namespace dtorch {

// Takes the runtime's own options out of argv (see --help), starts the job, runs `program` on rank 0 and ends the job.
// A checkpoint that is still being written is finished first (checkpoint::wait). Returns the exit code: 0 done, 1 error
// (the first cause is printed first), on every rank. Call it once, from main, and return its result.
int run(int argc, char** argv, const std::function<void(Client&)>& program);
// As above; `program` gets the arguments that are left.
int run(int argc, char** argv, const std::function<int(Client&, int argc, char** argv)>& program);

}  // namespace dtorch
