// The public interface to the checker of operators, for programs with operators of their own: every layout against one
// device, gradients, missing rows (ops/README.md). Link dtorch::checker.
//
//   int main(int argc, char** argv) { return dtorch::check_operators(argc, argv, {&my_op, &my_gradient_op}); }
//
// A program with tests of its own calls dtorch::checker::check_operator(client, my_op, {}) inside dtorch::run.
#pragma once
#include "checker/check_operators.h"
#include "checker/checker.h"
