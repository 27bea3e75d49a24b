// Shrinking of programs that fail: what may go is found by trying.
#include <algorithm>
#include <set>

#include "tests/random/run_program.h"

namespace dtorch::test {
namespace {

constexpr int kMostRuns = 500;

class Shrinker {
 public:
  explicit Shrinker(Program program) : program_(std::move(program)), result_(run_program(program_)) {}

  Program run() {
    if (result_.problem.empty()) return program_;
    if (result_.value >= 0) try_program(only_what_makes(result_.value));
    Program plain = program_;
    plain.gradients = false;
    try_program(std::move(plain));
    bool smaller = true;
    while (smaller && num_runs_ < kMostRuns) {
      smaller = false;
      for (size_t i = program_.steps.size(); i-- > 0;) {
        if (i < program_.steps.size() && shrink_step(i)) smaller = true;
      }
    }
    return program_;
  }

 private:
  bool try_program(Program candidate) {
    if (candidate.steps.empty() || ++num_runs_ > kMostRuns) return false;
    RunResult result = run_program(candidate);
    if (result.problem.empty()) return false;
    program_ = std::move(candidate);
    result_ = std::move(result);
    return true;
  }

  Program only_what_makes(int value) const {
    std::set<int> needed = {value};
    Program part = program_;
    part.steps.clear();
    for (size_t i = program_.steps.size(); i-- > 0;) {
      const Step& step = program_.steps[i];
      if (std::ranges::none_of(step.outputs, [&](int output) { return needed.contains(output); })) continue;
      needed.insert(step.inputs.begin(), step.inputs.end());
      part.steps.insert(part.steps.begin(), step);
    }
    part.gradients = false;
    return part;
  }

  bool is_read(int value) const {
    return std::ranges::any_of(
        program_.steps, [&](const Step& step) { return std::ranges::find(step.inputs, value) != step.inputs.end(); });
  }

  bool shrink_step(size_t i) {
    const Step step = program_.steps[i];
    if (std::ranges::none_of(step.outputs, [&](int output) { return is_read(output); })) {
      Program without = program_;
      without.steps.erase(without.steps.begin() + static_cast<std::ptrdiff_t>(i));
      if (try_program(std::move(without))) return true;
    }
    if (step.kind == Step::Kind::kLeaf) return simplify_leaf(i);
    if (step.kind == Step::Kind::kRedistribute && bypass(i)) return true;
    return replace_by_leaves(i);
  }

  bool simplify_leaf(size_t i) {
    const Step& step = program_.steps[i];
    for (int64_t axis = 0; axis < step.placements.size(); ++axis) {
      if (step.placements[axis].is_replicate()) continue;
      Program simpler = program_;
      simpler.steps[i].placements[axis] = Replicate();
      if (try_program(std::move(simpler))) return true;
    }
    if (!step.requires_grad) return false;
    Program simpler = program_;
    simpler.steps[i].requires_grad = false;
    return try_program(std::move(simpler));
  }

  // What reads a redistribution's result reads its source; legal where both are on one mesh.
  bool bypass(size_t i) {
    Program without = program_;
    const int from = without.steps[i].outputs[0], to = without.steps[i].inputs[0];
    const auto source = result_.layouts.find(to);
    if (source == result_.layouts.end() || source->second.mesh() != without.steps[i].mesh) return false;
    without.steps.erase(without.steps.begin() + static_cast<std::ptrdiff_t>(i));
    for (Step& step : without.steps) std::ranges::replace(step.inputs, from, to);
    return try_program(std::move(without));
  }

  // Leaves with the values and layouts that the step's results had.
  bool replace_by_leaves(size_t i) {
    Program simpler = program_;
    const Step step = simpler.steps[i];
    simpler.steps.erase(simpler.steps.begin() + static_cast<std::ptrdiff_t>(i));
    for (int output : step.outputs) {
      const auto layout = result_.layouts.find(output);
      const auto value = result_.values.find(output);
      if (layout == result_.layouts.end() || value == result_.values.end()) return false;
      Step leaf{.kind = Step::Kind::kLeaf, .outputs = {output}, .value = value->second.value};
      leaf.requires_grad = simpler.gradients && value->second.requires_grad;
      leaf.mesh = layout->second.mesh();
      leaf.placements = layout->second.placements();
      leaf.inner_first = !layout->second.order_is_default();
      simpler.steps.insert(simpler.steps.begin() + static_cast<std::ptrdiff_t>(i), std::move(leaf));
    }
    return try_program(std::move(simpler));
  }

  Program program_;
  RunResult result_;
  int num_runs_ = 0;
};

}  // namespace

Program shrink_program(const Program& program) { return Shrinker(program).run(); }

}  // namespace dtorch::test
