#include "checker/part_results.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "checker/values.h"
#include "mesh/layout.h"

namespace dtorch::checker {
namespace {

bool few_kinds(const std::vector<Placement>& tuple) {
  std::vector<Placement> others;
  for (const Placement& placement : tuple) {
    if (!placement.is_replicate()) others.push_back(placement);
  }
  return others.size() <= 2 || std::ranges::all_of(others, [&](const Placement& p) { return p == others[0]; });
}

constexpr int64_t kMostEnumerated = 1000000;

// For operators of very many inputs: one input held otherwise, all that can alike, and `limit` random tuples.
std::vector<std::vector<Placement>> drawn_tuples(const std::vector<std::vector<Placement>>& choices, int64_t limit,
                                                 std::mt19937_64& random) {
  std::vector<std::vector<Placement>> tuples;
  std::vector<Placement> kinds;
  for (size_t i = 0; i < choices.size(); ++i) {
    for (size_t c = 1; c < choices[i].size(); ++c) {
      tuples.emplace_back(choices.size(), Replicate());
      tuples.back()[i] = choices[i][c];
      if (std::ranges::find(kinds, choices[i][c]) == kinds.end()) kinds.push_back(choices[i][c]);
    }
  }
  for (const Placement& kind : kinds) {
    std::vector<Placement>& tuple = tuples.emplace_back(choices.size(), Replicate());
    for (size_t i = 0; i < choices.size(); ++i) {
      if (std::ranges::find(choices[i], kind) != choices[i].end()) tuple[i] = kind;
    }
  }
  for (int64_t n = 0; n < limit; ++n) {
    std::vector<Placement>& tuple = tuples.emplace_back();
    for (const std::vector<Placement>& own : choices)
      tuple.push_back(own[random() % 2 == 0 ? 0 : random() % own.size()]);
  }
  return tuples;
}

bool close(const std::vector<double>& got, const std::vector<double>& want, double allowed) {
  for (size_t e = 0; e < want.size(); ++e) {
    const bool same = got[e] == want[e] || (std::isnan(got[e]) && std::isnan(want[e]));
    if (!same && !(std::abs(got[e] - want[e]) <= allowed)) return false;
  }
  return true;
}

// Another call would hardly have given these values by chance.
bool is_telling(const HostTensor& whole) {
  const std::vector<double> values = whole.to_vector<double>();
  const auto is_fraction = [](double x) { return std::isfinite(x) && x != std::round(x); };
  if (std::ranges::any_of(values, is_fraction)) return true;
  return values.size() >= 8 && std::set<double>(values.begin(), values.end()).size() >= 2;
}

bool sums_up(const std::vector<HostTensor>& parts, const HostTensor& whole, double tolerance) {
  std::vector<double> sum(static_cast<size_t>(whole.num_elements()), 0.0);
  double scale = largest(whole);
  for (const HostTensor& part : parts) {
    scale = std::max(scale, largest(part));
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += part.element<double>(static_cast<int64_t>(e));
  }
  return close(sum, whole.to_vector<double>(), tolerance * scale);
}

bool are_shards(const std::vector<HostTensor>& parts, const HostTensor& whole, int64_t dim, double allowed) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Span1 span = split_part(whole.shape()[dim], static_cast<int64_t>(parts.size()), static_cast<int64_t>(i));
    Box box{Shape(whole.shape().ndim(), 0), whole.shape()};
    box.offset[dim] = span.offset;
    box.size[dim] = span.size;
    if (parts[i].shape() != box.size) return false;
    if (!close(parts[i].to_vector<double>(), part_of(whole, box).to_vector<double>(), allowed)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::vector<Placement>> chosen_tuples(const std::vector<std::vector<Placement>>& choices, int64_t limit,
                                                  std::mt19937_64& random) {
  int64_t total = 1;
  for (const std::vector<Placement>& own : choices) total *= static_cast<int64_t>(own.size());
  std::vector<std::vector<Placement>> tuples;
  if (total > kMostEnumerated) return drawn_tuples(choices, limit, random);
  for (int64_t number = 1; number < total; ++number) {
    std::vector<Placement> tuple;
    int64_t rest = number;
    for (const std::vector<Placement>& own : choices) {
      tuple.push_back(own[static_cast<size_t>(rest % static_cast<int64_t>(own.size()))]);
      rest /= static_cast<int64_t>(own.size());
    }
    const bool drawn = total <= limit || random() % static_cast<uint64_t>(total) < static_cast<uint64_t>(limit);
    if (drawn || few_kinds(tuple)) tuples.push_back(std::move(tuple));
  }
  return tuples;
}

bool are_shapes_of_parts(const std::vector<Shape>& parts, const Shape& whole) {
  if (std::ranges::all_of(parts, [&](const Shape& part) { return part == whole; })) return true;
  for (int64_t dim = 0; dim < whole.ndim(); ++dim) {
    bool fits = true;
    for (size_t i = 0; i < parts.size() && fits; ++i) {
      Shape want = whole;
      want[dim] = split_part(whole[dim], static_cast<int64_t>(parts.size()), static_cast<int64_t>(i)).size;
      fits = parts[i] == want;
    }
    if (fits) return true;
  }
  return false;
}

std::vector<Placement> fitting_placements(const std::vector<HostTensor>& parts, const HostTensor& whole,
                                          const std::vector<Placement>& inputs) {
  const DType dtype = whole.dtype();
  if (std::ranges::any_of(parts, [&](const HostTensor& part) { return part.dtype() != dtype; })) return {};
  const double tolerance = 10 * default_tolerance(dtype), allowed = tolerance * largest(whole);
  const bool telling = is_telling(whole);
  const bool pending = std::ranges::any_of(inputs, [](const Placement& p) { return p.is_partial(); });
  std::vector<Placement> fitting;
  if (std::ranges::all_of(parts, [&](const HostTensor& part) { return part.shape() == whole.shape(); })) {
    const std::vector<double> want = whole.to_vector<double>();
    const auto equals = [&](const HostTensor& part) { return close(part.to_vector<double>(), want, allowed); };
    if (telling && std::ranges::all_of(parts, equals)) fitting.push_back(Replicate());
    const bool may_add = dtype != kBool && (telling || (!is_floating(dtype) && largest(whole) > 0));
    if (may_add && sums_up(parts, whole, tolerance)) fitting.push_back(Partial());
  }
  for (int64_t dim = 0; dim < whole.shape().ndim() && (telling || !pending); ++dim) {
    // A dim of one element is the whole on one part and nothing on the others: no row of a rule says that.
    if (whole.shape()[dim] >= 2 && are_shards(parts, whole, dim, allowed)) fitting.push_back(Shard(dim));
  }
  return fitting;
}

}  // namespace dtorch::checker
