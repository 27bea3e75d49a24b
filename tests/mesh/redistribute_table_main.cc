// redistribute_table [FILE]: bytes moved for all pairs of placements against their lower bound, as Markdown.
#include <fstream>
#include <iostream>

#include "tests/mesh/lower_bound.h"

int main(int argc, char** argv) {
  const std::string text = dtorch::test::redistribution_table();
  if (argc < 2) {
    std::cout << text;
    return 0;
  }
  std::ofstream file(argv[1]);
  file << text;
  file.close();
  if (!file) {
    std::cerr << "can't write " << argv[1] << "\n";
    return 1;
  }
  return 0;
}
