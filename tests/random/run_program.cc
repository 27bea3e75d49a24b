#include "tests/random/run_program.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/random/builder.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

constexpr size_t kMostTerms = 8;  // of the loss

// Parts that add up to `value` in any order, bit for bit.
std::vector<HostTensor> exact_parts(const HostTensor& value, int64_t parts, uint64_t seed) {
  std::vector<HostTensor> all;
  std::vector<double> rest = value.to_vector<double>();
  const bool floating = is_floating(value.dtype());
  for (int64_t i = 0; i + 1 < parts; ++i) {
    const HostTensor noise = normal(value.shape(), kFloat64, seed + static_cast<uint64_t>(i));
    std::vector<double> part = (floating ? quantized(noise) : noise).to_vector<double>();
    for (size_t e = 0; e < part.size(); ++e) {
      if (!floating) part[e] = std::round(4 * part[e]);
      rest[e] -= part[e];
    }
    all.push_back(HostTensor::of<double>(value.shape(), part).to(value.dtype()));
  }
  all.push_back(HostTensor::of<double>(value.shape(), rest).to(value.dtype()));
  return all;
}

Tensor distributed_leaf(const Step& step) {
  const Layout layout = step.layout(step.value.shape().ndim());
  if (!layout.has_partial()) return distribute(step.value, layout);
  const DeviceMesh& mesh = layout.mesh();
  const auto make = [&](int64_t device, const Shape&) {
    HostTensor part = part_of(step.value, layout.box_of(step.value.shape(), device));
    const Shape coordinate = mesh.coordinate_of_index(mesh.index_of(device));
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
      const Placement& placement = layout.placement(axis);
      const int64_t parts = mesh.shape()[axis], index = coordinate[axis];
      if (placement.is_partial(kSum)) {
        part = exact_parts(part, parts, step.seed)[static_cast<size_t>(index)];
      } else if (placement.is_partial()) {
        part = partial_part(part, index, parts, placement.reduce);
      }
    }
    return part;
  };
  return from_local(layout, make, step.value.shape());
}

class Runner {
 public:
  explicit Runner(const Program& program) : program_(program) {}

  RunResult run() {
    result_.counts.programs = 1;
    try {
      run_reference();
    } catch (const std::exception& error) {
      fail(-1, std::string("on one device: ") + error.what());
    }
    int failed_at = -1;
    std::string failure;
    for (const Step& step : program_.steps) {
      if (!result_.problem.empty()) return std::move(result_);
      try {
        run_step(step);
        for (int value : step.outputs) compare(value);
      } catch (const std::exception& error) {
        failed_at = step.outputs[0];
        failure = error.what();
        break;
      }
    }
    finish_comparisons();
    // What an earlier value has wrong comes first: it may be the cause.
    if (result_.problem.empty() && failed_at >= 0) fail(failed_at, failure);
    try {
      if (result_.problem.empty() && program_.gradients) check_gradients();
    } catch (const std::exception& error) {
      fail(-1, std::string("gradients: ") + error.what());
    }
    return std::move(result_);
  }

 private:
  struct Made {
    Tensor reference, tensor;
    HostTensor want;
  };

  void fail(int value, const std::string& what) {
    result_.problem = what;
    result_.value = value;
  }
  Made& made(int value) { return made_[value]; }

  void run_reference() {
    for (const Step& step : program_.steps) {
      if (step.kind == Step::Kind::kLeaf) {
        made(step.outputs[0]).reference = from_host(step.value).requires_grad_(step.requires_grad);
      } else if (step.kind == Step::Kind::kRedistribute) {
        made(step.outputs[0]).reference = made(step.inputs[0]).reference;
      } else {
        std::vector<Tensor> inputs;
        for (int input : step.inputs) inputs.push_back(made(input).reference);
        manual_seed(step.seed);
        const std::vector<Tensor> outputs = step.run(inputs);
        for (size_t i = 0; i < outputs.size(); ++i) made(step.outputs.at(i)).reference = outputs[i];
      }
    }
    std::map<int, TensorFuture> reads;
    for (const auto& [value, one] : made_) reads[value] = one.reference.to_host_async();
    for (const auto& [value, read] : reads) {
      made(value).want = read.get();
      result_.values[value] = {made(value).want, made(value).reference.requires_grad()};
    }
  }

  void run_step(const Step& step) {
    if (step.kind == Step::Kind::kLeaf) {
      made(step.outputs[0]).tensor = distributed_leaf(step).requires_grad_(step.requires_grad);
      return;
    }
    std::vector<Tensor> inputs;
    for (int input : step.inputs) inputs.push_back(made(input).tensor);
    ++result_.counts.operators;
    const auto is_whole = [](const Tensor& input) { return input.layout().is_replicated(); };
    if (!std::ranges::all_of(inputs, is_whole)) ++result_.counts.sharded;
    if (step.kind == Step::Kind::kRedistribute) {
      ++result_.counts.redistributions;
      made(step.outputs[0]).tensor = inputs[0].redistribute(step.layout(inputs[0].ndim()));
      return;
    }
    const std::vector<Tensor> outputs = call_made_legal(step, std::move(inputs));
    if (outputs.size() != step.outputs.size()) throw InternalError("another number of results than on one device");
    for (size_t i = 0; i < outputs.size(); ++i) made(step.outputs[i]).tensor = outputs[i];
  }

  // Does what a refusal suggests and calls again; whole inputs where the refusal is that of an operator inside.
  std::vector<Tensor> call_made_legal(const Step& step, std::vector<Tensor> inputs) {
    constexpr int kMostTries = 8;
    for (int tries = 0;; ++tries) {
      try {
        manual_seed(step.seed);
        std::vector<Tensor> outputs = step.run(inputs);
        if (tries > 0) ++result_.counts.repaired;
        return outputs;
      } catch (const PlacementError& error) {
        if (tries == 0) ++result_.counts.refused;
        if (tries == kMostTries) throw;
        const bool of_this_call =
            std::ranges::equal(error.inputs(), inputs, [](const auto& described, const Tensor& x) {
              return described.layout == x.layout() && described.shape == x.shape();
            });
        if (of_this_call && !error.fix().empty() && tries < kMostTries / 2) {
          for (const Conversion& conversion : error.fix()) {
            Tensor& input = inputs.at(static_cast<size_t>(conversion.input));
            input = input.redistribute(conversion.layout);
          }
        } else {
          for (Tensor& input : inputs) input = input.redistribute(Layout::replicated(input.mesh()));
        }
      }
    }
  }

  void compare(int value) {
    const Made& one = made(value);
    const ValueFacts& facts = program_.values[static_cast<size_t>(value)];
    result_.layouts.emplace(value, one.tensor.layout());
    ++result_.counts.values_compared;
    checks_.emplace_back(
        value, TensorCheck(one.tensor, one.want, facts.exact ? 0 : facts.tolerance, facts.exact ? 0 : facts.error));
  }

  void finish_comparisons() {
    for (const auto& [value, check] : checks_) {
      std::string wrong;
      try {
        wrong = check.finish();
      } catch (const std::exception& error) {
        wrong = error.what();
      }
      if (!wrong.empty()) return fail(value, wrong);
    }
  }

  // --- gradients
  std::vector<int> terms() {
    std::set<int> read;
    for (const Step& step : program_.steps) read.insert(step.inputs.begin(), step.inputs.end());
    std::vector<int> ends;
    for (const auto& [value, one] : made_) {
      if (read.contains(value) || !one.reference.requires_grad() || ends.size() == kMostTerms) continue;
      const std::vector<double> values = one.want.to_vector<double>();
      if (std::ranges::all_of(values, [](double x) { return std::isfinite(x); })) ends.push_back(value);
    }
    return ends;
  }

  static Tensor reduced_extremes(const Tensor& x) {
    Placements target = x.placements();
    for (Placement& p : target) {
      if (p.is_partial(kMax) || p.is_partial(kMin)) p = Replicate();
    }
    return target == x.placements() ? x : x.redistribute(target);
  }

  Tensor loss_of(const std::vector<int>& ends, bool reference) {
    Tensor loss;
    for (int value : ends) {
      const Tensor x = reference ? made(value).reference : reduced_extremes(made(value).tensor);
      const HostTensor weight = quantized(normal(x.shape(), x.dtype(), 900 + static_cast<uint64_t>(value)));
      const Tensor term = to(sum(mul(x, distribute(weight, Layout::replicated(x.mesh())))), kFloat64);
      if (!loss.defined()) {
        loss = term;
      } else {
        loss = loss + term.redistribute(loss.mesh(), loss.placements());
      }
    }
    return loss;
  }

  // The largest tolerance and error bound among the values that depend on each.
  std::vector<ValueFacts> facts_downstream() const {
    std::vector<ValueFacts> facts = program_.values;
    for (size_t i = program_.steps.size(); i-- > 0;) {
      for (int input : program_.steps[i].inputs) {
        ValueFacts& own = facts[static_cast<size_t>(input)];
        for (int output : program_.steps[i].outputs) {
          const ValueFacts& later = facts[static_cast<size_t>(output)];
          own.error = std::max(own.error, later.error);
          own.tolerance = std::max(own.tolerance, later.tolerance);
        }
      }
    }
    return facts;
  }

  void check_gradients() {
    const std::vector<int> ends = terms();
    if (ends.empty()) return;
    ++result_.counts.with_gradients;
    loss_of(ends, true).backward();
    loss_of(ends, false).backward();
    const std::vector<ValueFacts> facts = facts_downstream();
    double scale = 1;
    std::map<int, TensorFuture> reads;
    std::map<int, HostTensor> wants;
    for (const Step& step : program_.steps) {
      if (!step.requires_grad) continue;
      const Tensor want = made(step.outputs[0]).reference.grad(), got = made(step.outputs[0]).tensor.grad();
      if (want.defined() != got.defined()) {
        fail(-1, "gradient of v" + std::to_string(step.outputs[0]) +
                     (got.defined() ? ": one device has none" : ": missing"));
        return;
      }
      if (!want.defined()) continue;
      reads[step.outputs[0]] = want.to_host_async();
    }
    for (const auto& [value, read] : reads) {
      wants[value] = read.get();
      for (double x : wants[value].to_vector<double>()) {
        if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
      }
    }
    std::vector<std::pair<int, TensorCheck>> checks;
    for (const auto& [value, want] : wants) {
      const ValueFacts& own = facts[static_cast<size_t>(value)];
      checks.emplace_back(value, TensorCheck(made(value).tensor.grad(), want, 10 * own.tolerance, scale * own.error));
    }
    for (const auto& [value, check] : checks) {
      ++result_.counts.gradients_compared;
      std::string wrong = check.finish();
      const Tensor got = made(value).tensor.grad();
      Placements placements = made(value).tensor.placements();
      for (Placement& p : placements) {
        if (p.is_partial()) p = Replicate();
      }
      if (wrong.empty() && got.placements() != placements)
        wrong = "has placements " + got.placements().str() + ", should have " + placements.str();
      if (wrong.empty()) continue;
      fail(-1, "gradient of v" + std::to_string(value) + ": " + wrong);
      return;
    }
  }

  const Program& program_;
  RunResult result_;
  std::map<int, Made> made_;
  std::vector<std::pair<int, TensorCheck>> checks_;  // of values, whose reads are under way
};

}  // namespace

RunCounts& RunCounts::operator+=(const RunCounts& other) {
  programs += other.programs;
  operators += other.operators;
  sharded += other.sharded;
  redistributions += other.redistributions;
  refused += other.refused;
  repaired += other.repaired;
  values_compared += other.values_compared;
  with_gradients += other.with_gradients;
  gradients_compared += other.gradients_compared;
  return *this;
}

RunResult run_program(const Program& program) {
  RunResult result = Runner(program).run();
  // What failed and was read is in the result; a failure that no value shows would meet somebody else.
  for (int i = 0; i < 100; ++i) {
    try {
      client().synchronize();
      break;
    } catch (const std::exception& error) {
      if (result.problem.empty()) result.problem = std::string("a failure that no value shows: ") + error.what();
    }
  }
  return result;
}

}  // namespace dtorch::test
