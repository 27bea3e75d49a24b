// Training gives the same losses on every layout and number of processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

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

  // What metrics say of every step; 50 unless `more` says otherwise.
  std::vector<nlohmann::json> train_lines(int np, int dp, int tp, const std::vector<std::string>& more) const {
    const std::string metrics = folder_ + "/metrics.jsonl";
    std::vector<std::string> command = {"dtorch_app", "train", "--metrics", metrics};
    const std::pair<const char*, std::string> defaults[] = {{"--data", folder_ + "/text.h5"},
                                                            {"--devices", std::to_string(dp * tp)},
                                                            {"--dp", std::to_string(dp)},
                                                            {"--tp", std::to_string(tp)},
                                                            {"--dim", "48"},
                                                            {"--layers", "2"},
                                                            {"--heads", "6"},
                                                            {"--kv-heads", "2"},
                                                            {"--length", "32"},
                                                            {"--batch", "6"},
                                                            {"--steps", "50"}};
    for (const auto& [name, value] : defaults) {
      if (std::ranges::find(more, name) == more.end()) command.insert(command.end(), {name, value});
    }
    command.insert(command.end(), more.begin(), more.end());
    const ProgramResult result = run_program(command, {.np = np});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.output.find('\r'), std::string::npos) << "plain lines where the output is no terminal";
    std::vector<nlohmann::json> lines;
    std::ifstream file(metrics);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  // Losses of 50 steps.
  std::vector<double> train(int np, int dp, int tp, const std::vector<std::string>& more = {}) const {
    std::vector<double> losses;
    for (const nlohmann::json& line : train_lines(np, dp, tp, more)) losses.push_back(line.at("loss"));
    EXPECT_EQ(losses.size(), 50u);
    return losses;
  }
  // Of the last run.
  std::vector<double> scales() const {
    std::vector<double> scales;
    std::ifstream file(folder_ + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) scales.push_back(nlohmann::json::parse(line).at("loss_scale"));
    return scales;
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

// Four parts of every gradient on two nodes: summed on a node first, which shows in the last bits.
TEST_F(Layouts, SumsInTheFastestOrderGiveNearlyTheSameLosses) {
  const std::vector<double> ordered = train(3, 4, 1, {"--batch", "8"});
  const std::vector<double> fast = train(3, 4, 1, {"--batch", "8", "--fast-reduce"});
  EXPECT_NE(ordered, fast) << "no sum had another order";
  for (size_t step = 0; step < 8 && step < ordered.size() && step < fast.size(); ++step)
    EXPECT_NEAR(fast[step], ordered[step], 1e-5 * ordered[step]) << "step " << step;
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

// Four chunks of a layer on two devices, as many parts as stages or more.
TEST_F(Layouts, VirtualStagesTrainAsOneDevice) {
  const std::vector<std::string> model = {"--layers", "4", "--dtype", "float64", "--steps", "8"};
  const auto losses = [&](int np, std::vector<std::string> more) {
    more.insert(more.end(), model.begin(), model.end());
    std::vector<double> out;
    for (const nlohmann::json& line : train_lines(np, 1, 1, more)) {
      out.push_back(line.at("loss"));
      out.push_back(line.at("grad_norm"));
    }
    return out;
  };
  const std::vector<double> one = losses(0, {});
  ASSERT_EQ(one.size(), 16u);
  for (int np : {0, 3}) {
    const std::vector<double> interleaved =
        losses(np, {"--devices", "2", "--pp", "2", "--schedule", "interleaved", "--virtual-stages", "2",
                    "--micro-batches", np == 0 ? "2" : "6"});
    ASSERT_EQ(interleaved.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(interleaved[i], one[i], 1e-9 * one[i]) << "figure " << i;
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

// The scale begins so large that gradients overflow: those steps are left out, the same ones on any number of
// processes, and then the model learns as in float32. Where float16 ends depends on how many numbers a device adds up,
// so that layouts may find scales that differ by a factor or two.
TEST_F(Layouts, Float16FindsItsScaleAndLearns) {
  const auto run = [&](int np, int dp, int tp) {
    const std::vector<double> losses = train(np, dp, tp, {"--dtype", "float16", "--loss-scale", "1073741824"});
    return std::pair(losses, scales());
  };
  const auto [losses, found] = run(0, 1, 1);
  ASSERT_EQ(found.size(), 50u);
  EXPECT_EQ(found.front(), 1073741824.0);
  EXPECT_LT(found.back(), found.front() / 4);
  EXPECT_GT(found.back(), 1.0);
  EXPECT_LT(losses.back(), 0.8 * losses.front()) << "it learns";
  for (const auto& [dp, tp] : {std::pair(2, 1), std::pair(1, 2)}) {
    SCOPED_TRACE("dp " + std::to_string(dp) + ", tp " + std::to_string(tp));
    const auto [other_losses, other] = run(3, dp, tp);
    EXPECT_EQ(std::vector(other.begin(), other.begin() + 8), std::vector(found.begin(), found.begin() + 8));
    EXPECT_LE(std::abs(std::log2(other.back() / found.back())), 2);
    EXPECT_NEAR(other_losses.back(), losses.back(), 0.05 * losses.back());
    EXPECT_EQ(run(0, dp, tp), std::pair(other_losses, other)) << "on one process";
  }
}

// Of float16 a checkpoint has the scale, the good steps since it changed, and the steps that weren't left out, also
// when it is written while training goes on. Another type goes on with the latter.
TEST_F(Layouts, Float16GoesOnFromACheckpointWithItsScaleAndItsCountOfSteps) {
  const auto run = [&](const std::string& folder, const std::string& steps, std::vector<std::string> more) {
    for (const char* word : {"--lr-schedule", "constant", "--loss-scale", "1048576", "--scale-interval", "4",
                             "--resume", "--validation-share", "0", "--save-every", "10", "--checkpoint-dir"})
      more.emplace_back(word);
    more.push_back(folder_ + "/" + folder);
    more.insert(more.end(), {"--steps", steps});
    return train_lines(2, 2, 1, more);
  };
  const auto figures = [](const std::vector<nlohmann::json>& lines) {
    std::vector<std::pair<double, double>> out;
    for (const nlohmann::json& line : lines) out.emplace_back(line.at("loss"), line.at("loss_scale"));
    return out;
  };
  const auto whole = figures(run("whole", "30", {"--dtype", "float16"}));
  run("part", "20", {"--dtype", "float16"});
  fs::copy(folder_ + "/part", folder_ + "/other", fs::copy_options::recursive);
  EXPECT_EQ(figures(run("part", "30", {"--dtype", "float16"})), whole);
  ASSERT_EQ(whole.size(), 30u);
  int64_t left_out = 0;
  for (size_t step = 0; step < 20; ++step) left_out += whole[step + 1].second < whole[step].second;
  EXPECT_GT(left_out, 0) << "so that counts differ";
  run("other", "30", {"--dtype", "float32", "--keep-last", "0"});
  const auto steps_in = [&](const std::string& step) {
    std::ifstream file(folder_ + "/other/step-0000" + step + "/manifest.json");
    return nlohmann::json::parse(file).at("optimizer_steps").get<int64_t>();
  };
  EXPECT_EQ(steps_in("20"), 20);
  EXPECT_EQ(steps_in("30"), 30 - left_out);
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
