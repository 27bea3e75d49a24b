// Generates random programs, runs them, and shrinks those that fail. On the client's thread, in a job of at least 4
// devices.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/random/program.h"

namespace dtorch::test {

struct GenerateOptions {
  uint64_t seed = 1;
  int min_operators = 5, max_operators = 40;
  double gradients = 0.5;  // of the programs
  // Calls of one operand that every program makes now and then: a test's own operators.
  std::vector<std::pair<std::string, Call>> extra_calls = {};
};
Program generate_program(uint64_t number, const GenerateOptions& options);

struct RunCounts {
  int64_t programs = 0, operators = 0, sharded = 0, redistributions = 0, refused = 0, repaired = 0, values_compared = 0,
          with_gradients = 0, gradients_compared = 0;
  RunCounts& operator+=(const RunCounts& other);
};

struct RunResult {
  std::string problem;            // "" when the program's two runs agree
  int value = -1;                 // that differs, or the first output of the call that failed; -1: a gradient
  std::map<int, Layout> layouts;  // of every value, as it came out
  struct OneDevice {
    HostTensor value;
    bool requires_grad = false;
  };
  std::map<int, OneDevice> values;
  RunCounts counts;
};
// Runs the program on its meshes and on one device, and compares every value and gradient. A refused call is made legal
// as its PlacementError suggests, and tried again.
RunResult run_program(const Program& program);

// The smallest program found, by leaving out steps and putting leaves in their place, that still fails.
Program shrink_program(const Program& program);

}  // namespace dtorch::test
