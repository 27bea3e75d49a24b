// What started this process, as the environment tells it; nothing here starts MPI.
#pragma once
#include <cstdint>
#include <string>

namespace dtorch {

// A non-negative number in the environment, or -1.
long number_in(const char* name);
// True under mpirun or srun with more than one rank. Reads the environment only, as the next ones do.
bool launched_with_mpi();
// Ranks that the launcher says it started; 0 when it says nothing.
int64_t ranks_asked_for();
// Rank 0, as the launcher tells it, or alone: the one that prints what goes wrong before MPI is up.
bool is_first_rank();
// Throws RuntimeFault, in one sentence, when the launcher can't have told MPI of the other ranks; MPI_Init would end
// the process then, with many.
void check_launcher();
// That sentence, for `asked` ranks (at most 1: unknown).
std::string no_pmi(int64_t asked);

}  // namespace dtorch
