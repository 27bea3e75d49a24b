#include "tests/programs/reference_parity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

void expect_relative(double value, double expected, double tolerance, const std::string& what) {
  EXPECT_LE(std::abs(value - expected), tolerance * std::abs(expected))
      << what << ": " << value << ", PyTorch has " << expected;
}

}  // namespace

std::vector<nlohmann::json> run_reference(const std::string& reference, const std::string& dtype, int np,
                                          const std::vector<std::string>& layout) {
  std::vector<std::string> command = {"reference_run", "--reference",
                                      source_path("tests/golden/reference/" + reference + ".json"), "--dtype", dtype};
  command.insert(command.end(), layout.begin(), layout.end());
  const ProgramResult result = run_program(command, {.np = np});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  std::vector<nlohmann::json> lines;
  std::istringstream in(result.output);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

void expect_pytorchs_results(const std::string& reference, const std::string& dtype,
                             const std::vector<nlohmann::json>& lines) {
  std::ifstream file(source_path("tests/golden/reference/" + reference + ".json"));
  const nlohmann::json expected = nlohmann::json::parse(file).at(dtype);
  const double tolerance = dtype == "float64" ? 1e-9 : 1e-5;
  const size_t steps = expected.at("loss").size();
  ASSERT_EQ(lines.size(), steps + 1);
  for (size_t step = 0; step < steps; ++step) {
    const std::string at = " of step " + std::to_string(step);
    EXPECT_EQ(lines[step].at("step").get<size_t>(), step);
    expect_relative(lines[step].at("loss"), expected.at("loss")[step], tolerance, "loss" + at);
    expect_relative(lines[step].at("cross_entropy"), expected.at("cross_entropy")[step], tolerance,
                    "cross entropy" + at);
    expect_relative(lines[step].at("grad_norm"), expected.at("grad_norm")[step],
                    dtype == "float64" ? tolerance : 10 * tolerance, "grad_norm" + at);
  }
  for (const auto& [name, norm] : expected.at("final_param_norms").items()) {
    expect_relative(lines[steps].at("final_param_norms").at(name), norm, tolerance, "norm of " + name);
  }
}

}  // namespace dtorch::test
