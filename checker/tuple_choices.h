// Which placements of a sample's inputs the checker tries. Seeded, so that the same run tries the same.
#pragma once
#include <random>
#include <vector>

#include "checker/checker.h"
#include "ops/def/operator_def.h"

namespace dtorch::checker {

using Choice = std::vector<Placements>;  // placements of every input, one an axis

class TupleChoices {
 public:
  TupleChoices(const Sample& sample, const CheckOptions& options);

  // Every tuple of one axis, or a sample of at most max_tuples and those in which all inputs have the same placement.
  std::vector<Choice> one_axis();
  // Pairs of tuples, for two axes; at most max_pairs.
  std::vector<Choice> pairs_of(const std::vector<Choice>& accepted);
  // max_others pairs of any tuples.
  std::vector<Choice> other_pairs();
  // For any number of axes: two of three times a tuple of `accepted` for each, else any tuples.
  Choice wide(int64_t num_axes, const std::vector<Choice>& accepted);
  // In [0, n).
  int64_t draw(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

 private:
  Choice number(int64_t number) const;

  const CheckOptions& options_;
  std::mt19937_64 random_;
  std::vector<std::vector<Placement>> choices_;  // by input
  int64_t total_ = 1;                            // tuples of one axis
};

}  // namespace dtorch::checker
