// The one MPI session of a test process that runs under mpirun; it ends after all tests.
#pragma once
#include "runtime/comm/mpi_session.h"

namespace dtorch {

MpiSession& mpi_session();

}  // namespace dtorch
