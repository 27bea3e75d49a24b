// One job of eight nodes with one device each, so that nothing is shared between devices: every block that travels is a
// copy, counted where it arrives.
#include "tests/support/cluster.h"

int main(int argc, char** argv) { return dtorch::test::run_tests(argc, argv, 8, 8); }
