// The programs of this folder run in one job, with the tests' own operators.
#include "runtime/worker/prepared_check.h"
#include "tests/random/planted.h"
#include "tests/support/cluster.h"

int main(int argc, char** argv) {
  dtorch::test::register_planted_operators();
  dtorch::set_check_prepared(true);
  return dtorch::test::run_tests(argc, argv, 2, 4);
}
