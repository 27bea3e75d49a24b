// Random straight-line programs: leaves, redistributions and calls of user-facing functions, each of which makes one or
// more values. A program says how values are laid out on meshes; the same program without the layouts runs on one
// device, and every value and gradient of both must agree.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dtorch/dtorch.h"

namespace dtorch::test {

using Call = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

struct Step {
  enum class Kind : uint8_t { kLeaf, kRedistribute, kCall };
  Kind kind = Kind::kCall;
  std::vector<int> inputs = {};   // numbers of values
  std::vector<int> outputs = {};  // numbers of values

  HostTensor value = {};  // of a leaf; what it holds pending is exact in any order of summation
  bool requires_grad = false;
  uint64_t seed = 0;  // of a leaf's pending parts; of a call's random numbers

  DeviceMesh mesh = {};  // of leaves and redistributions
  Placements placements = {};
  bool inner_first = false;  // shards of one dim by both axes are split in the other order

  std::string text = {};  // of a call: "matmul($0, $1)"
  Call run = {};
  Layout layout(int64_t ndim) const;
};

// What a value's comparison needs to know.
struct ValueFacts {
  // The same bits are demanded: integers, and what was only copied or chosen from leaves.
  bool exact = false;
  // Magnitude of what went into it, as far as rounding errors are concerned: errors up to tolerance * error are fine.
  double error = 0;
  double tolerance = 1e-12;
};

struct Program {
  uint64_t number = 0;
  std::vector<Step> steps;
  std::vector<ValueFacts> values;  // by number; shrinking leaves some without a step
  bool gradients = false;

  int64_t num_operators() const;  // steps that aren't leaves
  // The program as lines of C++.
  std::string str() const;
};

// Index of the step that makes a value; -1 when none does.
int step_of(const Program& program, int value);

}  // namespace dtorch::test
