// The Llama against PyTorch's results on one device (tests/golden/reference), on many layouts and numbers of processes.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

struct Case {
  std::string reference, dtype;
  int np, devices, dp, tp, accumulate;
};
std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return c.reference + "_" + c.dtype + "_np" + std::to_string(c.np) + "_dp" + std::to_string(c.dp) + "_tp" +
         std::to_string(c.tp) + "_accumulate" + std::to_string(c.accumulate);
}

std::vector<nlohmann::json> run_reference(const Case& c) {
  const ProgramResult result =
      run_program({"reference_run", "--reference", source_path("tests/golden/reference/" + c.reference + ".json"),
                   "--dtype", c.dtype, "--devices", std::to_string(c.devices), "--dp", std::to_string(c.dp), "--tp",
                   std::to_string(c.tp), "--accumulate", std::to_string(c.accumulate)},
                  {.np = c.np});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  std::vector<nlohmann::json> lines;
  std::istringstream in(result.output);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

void expect_relative(double value, double expected, double tolerance, const std::string& what) {
  EXPECT_LE(std::abs(value - expected), tolerance * std::abs(expected))
      << what << ": " << value << ", PyTorch has " << expected;
}

class Parity : public testing::TestWithParam<Case> {};

TEST_P(Parity, LossesGradientNormsAndFinalParametersEqualPyTorchs) {
  const Case& c = GetParam();
  std::ifstream file(source_path("tests/golden/reference/" + c.reference + ".json"));
  const nlohmann::json expected = nlohmann::json::parse(file).at(c.dtype);
  const double tolerance = c.dtype == "float64" ? 1e-9 : 1e-5;
  const std::vector<nlohmann::json> lines = run_reference(c);
  const size_t steps = expected.at("loss").size();
  ASSERT_EQ(lines.size(), steps + 1);
  for (size_t step = 0; step < steps; ++step) {
    const std::string at = " of step " + std::to_string(step);
    EXPECT_EQ(lines[step].at("step").get<size_t>(), step);
    expect_relative(lines[step].at("loss"), expected.at("loss")[step], tolerance, "loss" + at);
    // In float32 gradients of a model that trains drift apart; their norms are held to ten times the loss's tolerance.
    expect_relative(lines[step].at("grad_norm"), expected.at("grad_norm")[step],
                    c.dtype == "float64" ? tolerance : 10 * tolerance, "grad_norm" + at);
  }
  for (const auto& [name, norm] : expected.at("final_param_norms").items()) {
    expect_relative(lines[steps].at("final_param_norms").at(name), norm, tolerance, "norm of " + name);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Parity,
    testing::Values(Case{"llama", "float64", 0, 1, 1, 1, 1}, Case{"llama", "float64", 0, 2, 2, 1, 1},
                    Case{"llama", "float64", 0, 3, 3, 1, 1}, Case{"llama", "float64", 0, 4, 4, 1, 1},
                    Case{"llama", "float64", 0, 2, 1, 2, 1}, Case{"llama", "float64", 0, 3, 1, 3, 1},
                    Case{"llama", "float64", 0, 4, 2, 2, 3}, Case{"llama", "float64", 2, 2, 2, 1, 3},
                    Case{"llama", "float64", 3, 4, 2, 2, 1}, Case{"llama", "float64", 3, 6, 2, 3, 3},
                    Case{"llama", "float64", 0, 1, 1, 1, 3}, Case{"llama", "float32", 0, 1, 1, 1, 1},
                    Case{"llama", "float32", 3, 4, 2, 2, 1}, Case{"llama_tied_masked", "float64", 0, 1, 1, 1, 1},
                    Case{"llama_tied_masked", "float64", 0, 3, 3, 1, 3},
                    Case{"llama_tied_masked", "float64", 0, 4, 4, 1, 1},
                    Case{"llama_tied_masked", "float64", 2, 3, 1, 3, 1},
                    Case{"llama_tied_masked", "float64", 3, 4, 2, 2, 3},
                    Case{"llama_tied_masked", "float32", 3, 2, 1, 2, 1}),
    name_of_case);

TEST(ParityOfProcesses, ResultsOfOneLayoutAreBitwiseEqualOnOneTwoAndThreeProcesses) {
  const std::vector<nlohmann::json> alone = run_reference({"llama", "float32", 0, 4, 2, 2, 1});
  EXPECT_EQ(alone.size(), 13u);
  EXPECT_EQ(alone, run_reference({"llama", "float32", 2, 4, 2, 2, 1}));
  EXPECT_EQ(alone, run_reference({"llama", "float32", 3, 4, 2, 2, 1}));
}

}  // namespace
}  // namespace dtorch::test
