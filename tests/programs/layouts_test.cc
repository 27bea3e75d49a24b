// Training gives the same losses on every layout and number of processes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

class Layouts : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("layouts");
    std::ofstream text(folder_ + "/text.txt");
    for (int i = 0; i < 3000; ++i) text << "verse " << i * 7919 % 1000 << " of a small book, and so on; ";
    text.close();
    const ProgramResult prepared =
        run_program({"dtorch_app", "prepare", "--text", folder_ + "/text.txt", "--out", folder_ + "/text.h5"});
    ASSERT_EQ(prepared.exit_code, 0) << prepared.errors;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Losses of 50 steps.
  std::vector<double> train(int np, int dp, int tp, const std::vector<std::string>& more = {}) const {
    const std::string metrics = folder_ + "/metrics.jsonl";
    std::vector<std::string> command = {"dtorch_app", "train",
                                        "--data",     folder_ + "/text.h5",
                                        "--devices",  std::to_string(dp * tp),
                                        "--dp",       std::to_string(dp),
                                        "--tp",       std::to_string(tp),
                                        "--dim",      "48",
                                        "--layers",   "2",
                                        "--heads",    "6",
                                        "--kv-heads", "2",
                                        "--length",   "32",
                                        "--batch",    "6",
                                        "--steps",    "50",
                                        "--metrics",  metrics};
    command.insert(command.end(), more.begin(), more.end());
    const ProgramResult result = run_program(command, {.np = np});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.output.find('\r'), std::string::npos) << "plain lines where the output is no terminal";
    std::vector<double> losses;
    std::ifstream file(metrics);
    for (std::string line; std::getline(file, line);) losses.push_back(nlohmann::json::parse(line).at("loss"));
    EXPECT_EQ(losses.size(), 50u);
    return losses;
  }
  std::string folder_;
};

TEST_F(Layouts, OneLayoutIsBitwiseEqualOnOneTwoAndThreeProcesses) {
  const std::vector<double> alone = train(0, 2, 2);
  EXPECT_LT(alone.back(), 0.8 * alone.front()) << "it learns";
  EXPECT_EQ(alone, train(1, 2, 2));
  EXPECT_EQ(alone, train(2, 2, 2));
  EXPECT_EQ(alone, train(3, 2, 2));
}

TEST_F(Layouts, LayoutsAgreeUpToTheOrderOfSums) {
  const std::vector<double> one = train(0, 1, 1);
  const int layouts[][2] = {{2, 1}, {4, 1}, {1, 2}, {1, 3}, {2, 3}};
  for (const auto& [dp, tp] : layouts) {
    const std::vector<double> other = train(3, dp, tp);
    for (size_t step = 0; step < one.size() && step < other.size(); ++step) {
      const double tolerance = step < 8 ? 1e-5 : 2e-3;
      EXPECT_NEAR(other[step], one[step], tolerance * one[step]) << "step " << step << ", dp " << dp << ", tp " << tp;
    }
  }
}

TEST_F(Layouts, ABatchInPartsTrainsAsTheBatchInOnePiece) {
  const std::vector<double> one = train(0, 1, 1);
  for (const char* option : {"--micro-batches", "--accumulate"}) {
    const std::vector<double> parts = train(0, 1, 1, {option, "3"});
    for (size_t step = 0; step < 8 && step < one.size() && step < parts.size(); ++step)
      EXPECT_NEAR(parts[step], one[step], 1e-5 * one[step]) << option << " step " << step;
  }
}

TEST_F(Layouts, ABFloat16ModelsLossHasMoreDigitsThanBFloat16) {
  int finer = 0;
  for (double loss : train(0, 1, 1, {"--dtype", "bfloat16"})) {
    const double ulp = std::ldexp(1.0, std::ilogb(loss) - 7);  // bfloat16 has 8 significant bits
    finer += std::fmod(loss, ulp) != 0;
  }
  EXPECT_GT(finer, 25) << "of 50 steps";
}

TEST_F(Layouts, ACheckpointOfOneLayoutContinuesOnAnother) {
  auto run = [&](int np, int dp, int tp, int steps, const std::string& saved, const std::string& metrics) {
    const ProgramResult result = run_program({"dtorch_app",
                                              "train",
                                              "--data",
                                              folder_ + "/text.h5",
                                              "--devices",
                                              std::to_string(dp * tp),
                                              "--dp",
                                              std::to_string(dp),
                                              "--tp",
                                              std::to_string(tp),
                                              "--dim",
                                              "48",
                                              "--layers",
                                              "2",
                                              "--heads",
                                              "6",
                                              "--kv-heads",
                                              "2",
                                              "--length",
                                              "32",
                                              "--batch",
                                              "6",
                                              "--lr-schedule",
                                              "constant",
                                              "--dtype",
                                              "float64",
                                              "--steps",
                                              std::to_string(steps),
                                              "--checkpoint-dir",
                                              folder_ + "/" + saved,
                                              "--resume",
                                              "--metrics",
                                              folder_ + "/" + metrics},
                                             {.np = np});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    std::vector<double> losses;
    std::ifstream file(folder_ + "/" + metrics);
    for (std::string line; std::getline(file, line);) losses.push_back(nlohmann::json::parse(line).at("loss"));
    return losses;
  };
  const std::vector<double> whole = run(0, 1, 1, 10, "whole", "whole.jsonl");
  run(3, 2, 3, 5, "part", "part.jsonl");
  const std::vector<double> continued = run(2, 4, 1, 10, "part", "part.jsonl");
  ASSERT_EQ(whole.size(), 10u);
  ASSERT_EQ(continued.size(), 10u);
  for (size_t step = 0; step < 10; ++step)
    EXPECT_NEAR(continued[step], whole[step], 1e-9 * whole[step]) << "step " << step;
}

}  // namespace
}  // namespace dtorch::test
