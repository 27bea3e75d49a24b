// Files, on a job of two nodes with two devices each.
#include "tests/support/cluster.h"

int main(int argc, char** argv) { return dtorch::test::run_tests(argc, argv, 2, 4); }
