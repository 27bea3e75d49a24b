// main() of a program that checks operators of its own.
#pragma once
#include <span>
#include <vector>

#include "checker/checker.h"

namespace dtorch {

// Registers those of `operators` that aren't registered yet (on every rank the same list: the gradient operators too),
// starts a job (4 devices unless the command line says otherwise) and runs the checker on each that has samples. Prints
// a line an operator, and what is wrong to stderr. One without samples must be recorded by the samples of another.
// `excluded`: rows that an operator refuses although they need no communication. The program's own words on the command
// line: --full (every tuple of placements, all Partials) and --seed N; all others are the runtime's (--help). Returns
// the exit code: 0 when nothing is wrong, on every rank. Call it from main, instead of dtorch::run.
int check_operators(int argc, char** argv, const std::vector<OperatorDef*>& operators,
                    std::span<const checker::ExcludedRow> excluded = {});

}  // namespace dtorch
