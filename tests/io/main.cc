// Files, on a job of two nodes with two devices each.
#include "runtime/worker/prepared_check.h"
#include "tests/support/cluster.h"

int main(int argc, char** argv) {
  dtorch::set_check_prepared(true);
  return dtorch::test::run_tests(argc, argv, 2, 4);
}
