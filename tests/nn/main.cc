// One job of two nodes and eight devices for models.
#include "tests/support/cluster.h"

int main(int argc, char** argv) { return dtorch::test::run_tests(argc, argv, 2, 8); }
