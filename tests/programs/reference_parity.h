// Runs reference_run and compares its losses, gradient norms and final parameters with PyTorch's results
// (tests/golden/reference).
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dtorch::test {

// Lines that reference_run prints; reports a failure when it doesn't end well.
std::vector<nlohmann::json> run_reference(const std::string& reference, const std::string& dtype, int np,
                                          const std::vector<std::string>& layout);
// To 1e-9 relative in float64, 1e-5 in float32 (gradient norms 1e-4: gradients of a model that trains drift apart).
void expect_pytorchs_results(const std::string& reference, const std::string& dtype,
                             const std::vector<nlohmann::json>& lines);

}  // namespace dtorch::test
