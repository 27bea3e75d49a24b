// One job of two nodes and eight devices for the cases.
#include "runtime/worker/prepared_check.h"
#include "tests/support/cluster.h"

int main(int argc, char** argv) {
  dtorch::set_check_prepared(true);
  return dtorch::test::run_tests(argc, argv, 2, 8);
}
