// One job of two nodes and eight devices for the calls of this folder.
#include "runtime/worker/prepared_check.h"
#include "tests/layouts/calls.h"
#include "tests/support/cluster.h"

int main(int argc, char** argv) {
  dtorch::test::register_calls();
  dtorch::set_check_prepared(true);
  return dtorch::test::run_tests(argc, argv, 2, 8);
}
