// The Llama against PyTorch's results on one device (tests/golden/reference), on many layouts and numbers of processes.
#include <gtest/gtest.h>

#include "tests/programs/reference_parity.h"

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

std::vector<nlohmann::json> run_case(const Case& c) {
  return run_reference(c.reference, c.dtype, c.np,
                       {"--devices", std::to_string(c.devices), "--dp", std::to_string(c.dp), "--tp",
                        std::to_string(c.tp), "--accumulate", std::to_string(c.accumulate)});
}

class Parity : public testing::TestWithParam<Case> {};

TEST_P(Parity, LossesGradientNormsAndFinalParametersEqualPyTorchs) {
  const Case& c = GetParam();
  expect_pytorchs_results(c.reference, c.dtype, run_case(c));
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
  const std::vector<nlohmann::json> alone = run_case({"llama", "float32", 0, 4, 2, 2, 1});
  EXPECT_EQ(alone.size(), 13u);
  EXPECT_EQ(alone, run_case({"llama", "float32", 2, 4, 2, 2, 1}));
  EXPECT_EQ(alone, run_case({"llama", "float32", 3, 4, 2, 2, 1}));
}

}  // namespace
}  // namespace dtorch::test
