// Builds a random program step by step, and runs it on one device while it does: so that it knows every value's shape,
// dtype and magnitude, and drops proposals that are no legal calls.
#pragma once
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ops/def/operator_def.h"
#include "tests/random/program.h"

namespace dtorch::test {

// A value that is there, as proposals see it.
struct Known {
  int number = -1;
  Tensor tensor = {};  // on one device
  int mesh = 0;
  double largest = 0;  // absolute value
  bool finite = true;
  bool readable = true;  // may become an operand
  const Shape& shape() const { return tensor.shape(); }
  int64_t ndim() const { return tensor.ndim(); }
  DType dtype() const { return tensor.dtype(); }
};

struct LeafWish {
  Shape shape = {};
  DType dtype = kFloat64;
  SampleFill fill = SampleFill::kNormal;
  int64_t index_bound = 0;
  bool differentiable = true;
};

// One call to add. The bound of rounding errors becomes gain * (sum of the operands' bounds) + the result's magnitude.
struct Proposal {
  std::string text = {};
  std::vector<int> inputs = {};
  Call run = {};
  double gain = 1;
  bool keeps_exact = false;  // only copies or chooses elements
  double tolerance = 0;      // 0: the dtype's
  bool results_readable = true;
};

class Builder {
 public:
  Builder(uint64_t number, uint64_t seed, bool gradients, int num_meshes);

  // --- choices
  uint64_t below(uint64_t n) { return random_() % n; }
  bool chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  template <class F>
  const Known* any(F&& suits) {
    std::vector<const Known*> suitable;
    for (const Known& known : known_) {
      if (known.readable && suits(known)) suitable.push_back(&known);
    }
    // Recent ones twice as often, so that programs grow deep.
    if (suitable.empty()) return nullptr;
    const size_t first = chance(0.5) ? suitable.size() / 2 : 0;
    return suitable[first + below(suitable.size() - first)];
  }
  // float64 of bounded error and magnitude.
  const Known* any_real(double most = 30) {
    return any([&](const Known& known) { return is_real(known, most); });
  }
  const Known* any_exact_real() {
    return any([&](const Known& known) { return is_real(known, 1e3) && facts(known.number).exact; });
  }
  bool is_real(const Known& known, double most) const;
  const Known& known(int number) const;
  const ValueFacts& facts(int number) const { return program_.values[static_cast<size_t>(number)]; }
  Shape random_shape(int64_t min_ndim, int64_t max_ndim);

  // --- steps
  int leaf(const LeafWish& wish);
  // The value on the program's mesh number `mesh`, by a redistribution if it is on another.
  int on_mesh(int value, int mesh);
  int redistribute(int value);
  // False when the call isn't legal, or its result is of no use.
  bool call(Proposal proposal);
  Program take() { return std::move(program_); }
  int64_t num_operators() const { return program_.num_operators(); }

 private:
  Placements random_placements(const DeviceMesh& mesh, int64_t ndim, DType dtype, bool only_sum);
  int add_value(const Tensor& tensor, const HostTensor& value, int mesh, ValueFacts facts, bool readable);
  HostTensor leaf_value(const LeafWish& wish);

  std::mt19937_64 random_;
  std::vector<DeviceMesh> meshes_;
  Program program_;
  std::vector<Known> known_;
};

// The proposal number `kind` of num_proposals(); nullopt when nothing there suits it.
size_t num_proposals();
std::optional<Proposal> propose(size_t kind, Builder& builder);
// A sample of a registered operator, on leaves of its own.
std::optional<Proposal> propose_sample(Builder& builder);

// Rounds to what adds up exactly: a multiple of 2^-16 (float64, float32) of bounded size.
HostTensor quantized(const HostTensor& value);

}  // namespace dtorch::test
