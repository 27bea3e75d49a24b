#include "checker/sample_values.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "checker/values.h"

namespace dtorch::checker {
namespace {

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

// 0 .. n-1, shuffled.
std::vector<double> shuffled(int64_t n, std::mt19937_64& random) {
  std::vector<double> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0.0);
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
  return values;
}

}  // namespace

HostTensor sample_value(const SampleInput& input, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t count = input.global_shape.num_elements();
  const bool floating = is_floating(input.dtype);
  std::vector<double> values(static_cast<size_t>(count));
  switch (input.fill) {
    case SampleFill::kNormal:
      values = normal(input.global_shape, kFloat64, seed).to_vector<double>();
      if (!floating) std::ranges::transform(values, values.begin(), [](double x) { return std::round(3 * x); });
      break;
    case SampleFill::kPositive:
      for (double& x : values) x = floating ? 0.1 + 2 * uniform(random) : 1 + static_cast<double>(random() % 7);
      break;
    case SampleFill::kIota:
      for (size_t e = 0; e < values.size(); ++e) {
        const double x = static_cast<double>(e);
        values[e] = floating ? 0.5 * x - 3 : input.dtype == kUInt8 ? x : x - 3;
      }
      break;
    case SampleFill::kIndices:
      for (double& x : values)
        x = static_cast<double>(random() % static_cast<uint64_t>(std::max<int64_t>(input.index_bound, 1)));
      break;
    case SampleFill::kBool:
      for (double& x : values) x = static_cast<double>(random() >> 63);
      break;
    case SampleFill::kDistinct:
      values = shuffled(count, random);
      if (floating) std::ranges::transform(values, values.begin(), [](double x) { return 0.25 * x - 2; });
      break;
    case SampleFill::kUnit:
      for (double& x : values) x = floating ? 0.02 + 0.96 * uniform(random) : static_cast<double>(random() % 2);
      break;
  }
  return HostTensor::of<double>(input.global_shape, values).to(input.dtype);
}

std::vector<Placement> axis_choices(const SampleInput& input, bool every_reduction) {
  std::vector<Placement> choices = {Replicate()};
  for (int64_t d = 0; d < input.global_shape.ndim(); ++d) choices.push_back(Shard(d));
  if (input.dtype == kBool || input.dtype == kUInt8) return choices;
  choices.push_back(Partial());
  if (every_reduction && is_floating(input.dtype)) {
    for (ReduceOp reduce : {kAvg, kMax, kMin}) choices.push_back(Partial(reduce));
  }
  return choices;
}

std::string short_text(const Placement& placement) {
  if (placement.is_replicate()) return "R";
  if (placement.is_shard()) return "S" + std::to_string(placement.dim);
  return placement.reduce == kSum ? "P" : std::string("P") + name_of(placement.reduce);
}

std::string short_text(const Row& row) {
  std::string text;
  for (const Placement& placement : row.inputs) text += (text.empty() ? "" : ",") + short_text(placement);
  text += "->";
  for (size_t i = 0; i < row.outputs.size(); ++i) text += (i > 0 ? "," : "") + short_text(row.outputs[i]);
  return text;
}

}  // namespace dtorch::checker
