// One job of two nodes and four devices for all wrong calls.
#include "tests/errors/diverging_operator.h"
#include "tests/errors/failing_operator.h"
#include "tests/support/cluster.h"

int main(int argc, char** argv) {
  dtorch::test::register_failing_operator();
  dtorch::test::register_diverging_operator();
  return dtorch::test::run_tests(argc, argv, 2, 4);
}
