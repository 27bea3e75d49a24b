// docs/operators.md: one line an operator, from the registry and from what a checker's run has covered.
#pragma once
#include <set>
#include <string>

namespace dtorch::test {

// Runs the first sample of every operator on one device (compositions: on two), so that it belongs into a job.
// `checked_by_sample` and `checked_on_the_way`: names of operators whose samples passed, and of those that were
// recorded while they did.
std::string operator_table(const std::set<std::string>& checked_by_sample,
                           const std::set<std::string>& checked_on_the_way);

}  // namespace dtorch::test
