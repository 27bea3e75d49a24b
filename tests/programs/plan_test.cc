// `dtorch_app plan` says before a run what the run will show.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::vector<std::string> kModel = {"--dim",    "64", "--layers", "2", "--heads",   "4", "--kv-heads", "2",
                                         "--length", "64", "--batch",  "8", "--devices", "4"};

// Writes a small text to the folder; returns its path.
std::string written_text(const std::string& folder) {
  std::ofstream text(folder + "/text.txt");
  for (int i = 0; i < 3000; ++i) text << "line " << i * 7919 % 1000 << " of a small text.\n";
  return folder + "/text.txt";
}

json planned(std::vector<std::string> more, const std::string& vocab) {
  std::vector<std::string> command = {"dtorch_app", "plan", "--json", "--vocab", vocab};
  command.insert(command.end(), kModel.begin(), kModel.end());
  command.insert(command.end(), more.begin(), more.end());
  const ProgramResult result = run_program(command);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return json::parse(result.output);
}

TEST(Plan, PeakMemoryIsThatOfARealStepOnEveryLayout) {
  const std::string folder = scratch_folder("plan");
  ASSERT_EQ(
      run_program({"dtorch_app", "prepare", "--text", written_text(folder), "--out", folder + "/text.h5"}).exit_code,
      0);
  const std::vector<std::vector<std::string>> layouts = {{"--dp", "4"},
                                                         {"--dp", "4", "--zero", "3"},
                                                         {"--dp", "2", "--tp", "2"},
                                                         {"--pp", "2", "--dp", "2", "--micro-batches", "2"}};
  for (const std::vector<std::string>& layout : layouts) {
    std::vector<std::string> command = {
        "dtorch_app",         "train", "--data",    folder + "/text.h5",      "--steps", "4",
        "--validation-share", "0",     "--metrics", folder + "/metrics.jsonl"};
    command.insert(command.end(), kModel.begin(), kModel.end());
    command.insert(command.end(), layout.begin(), layout.end());
    const ProgramResult trained = run_program(command);
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
    std::ifstream metrics(folder + "/metrics.jsonl");
    std::string line, last;
    while (std::getline(metrics, line)) last = line;
    const double real = json::parse(last).at("peak_bytes");
    // A command of train's, as it is. The vocabulary is the data's.
    std::vector<std::string> more = layout;
    more.insert(more.end(),
                {"--data", folder + "/text.h5", "--steps", "4", "--lr", "1e-3", "--metrics", folder + "/none"});
    const json plan = planned(more, "32000");
    EXPECT_FALSE(fs::exists(folder + "/none")) << "a plan writes nothing";
    double peak = 0;
    for (const json& bytes : plan.at("peak_bytes_per_device")) peak = std::max(peak, bytes.get<double>());
    EXPECT_NEAR(peak, real, 0.15 * real) << testing::PrintToString(layout);
    fs::remove(folder + "/metrics.jsonl");
  }
  fs::remove_all(folder);
}

TEST(Plan, SplitParametersAndStateAddUpToTheWhole) {
  const json whole = planned({"--dp", "4"}, "256"), split = planned({"--dp", "4", "--zero", "3"}, "256");
  const auto sum = [](const json& list) {
    int64_t total = 0;
    for (const json& item : list) total += item.get<int64_t>();
    return total;
  };
  const int64_t bytes = 4 * whole.at("num_parameters").get<int64_t>();
  EXPECT_EQ(sum(whole.at("parameter_bytes_per_device")), 4 * bytes);
  EXPECT_EQ(sum(split.at("parameter_bytes_per_device")), bytes);
  EXPECT_EQ(sum(split.at("optimizer_bytes_per_device")), 2 * bytes);
  bool gathers = false;
  for (const json& entry : split.at("communication"))
    gathers |= entry.at("kind") == "all-gather" && entry.at("axes") == "dp" && entry.at("bytes") > 0;
  EXPECT_TRUE(gathers) << split.at("communication");
}

TEST(Plan, AModelThatFitsNoMachineHereIsPlannedInText) {
  const ProgramResult result = run_program(
      {"dtorch_app", "plan", "--devices", "64",   "--nodes", "8",  "--dim", "4096", "--layers", "8", "--heads", "32",
       "--kv-heads", "8",    "--length",  "2048", "--batch", "64", "--dp",  "8",    "--tp",     "8", "--zero",  "3"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const char* expected : {"Memory of a device in a step, MiB:", "Moved between devices in a step", "all-gather",
                               "Control: ", "operators a step"})
    EXPECT_NE(result.output.find(expected), std::string::npos) << result.output;
}

TEST(Plan, SaysThatRowsForExpertsAreAnUpperBound) {
  const std::vector<std::string> layout = {"--dp", "2", "--ep", "2", "--experts", "4"};
  const json plan = planned(layout, "256");
  EXPECT_TRUE(plan.at("counts_all_expert_rows").get<bool>());
  EXPECT_FALSE(planned({"--dp", "4"}, "256").at("counts_all_expert_rows").get<bool>());
  int64_t moved = 0;
  for (const json& entry : plan.at("communication")) {
    if (entry.at("kind") != "all-to-all of rows") continue;
    EXPECT_EQ(entry.at("axes"), "ep");
    moved += entry.at("bytes").get<int64_t>();
  }
  // Two layers, 8 x 64 tokens, half of whose rows stay; there with two gates behind 64 features and back, and in
  // backward the gradients: back with those of the gates, and there.
  EXPECT_EQ(moved, 2 * (8 * 64) * 4 * (66 + 64 + 64 + 66));
  std::vector<std::string> command = {"dtorch_app", "plan", "--vocab", "256"};
  command.insert(command.end(), kModel.begin(), kModel.end());
  command.insert(command.end(), layout.begin(), layout.end());
  const ProgramResult text = run_program(command);
  EXPECT_NE(text.output.find("At most: rows for experts are counted"), std::string::npos) << text.output;
}

struct PipelineRun {
  const char* name;
  std::vector<std::string> schedule;
  int np;
  const char* idle_in_theory;  // per cent
};

class ProfileOfAPipeline : public testing::TestWithParam<PipelineRun> {};

// Two stages, two micro-batches: of 3 steps each stage idles one, with two chunks a stage one of 5.
TEST_P(ProfileOfAPipeline, IsATableWithTheMeasuredBubbleBesideTheTheoreticalOne) {
  const std::string folder = scratch_folder("profile");
  ASSERT_EQ(
      run_program({"dtorch_app", "prepare", "--text", written_text(folder), "--out", folder + "/text.h5"}).exit_code,
      0);
  std::vector<std::string> command = {"dtorch_app", "train",
                                      "--data",     folder + "/text.h5",
                                      "--steps",    "5",
                                      "--profile",  "--pp",
                                      "2",          "--dp",
                                      "2",          "--micro-batches",
                                      "2",          "--validation-share",
                                      "0",          "--schedule"};
  command.insert(command.end(), GetParam().schedule.begin(), GetParam().schedule.end());
  std::vector<std::string> model = kModel;
  *std::next(std::find(model.begin(), model.end(), "--layers")) = "4";
  command.insert(command.end(), model.begin(), model.end());
  const ProgramResult result = run_program(command, {.np = GetParam().np});
  fs::remove_all(folder);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const char* expected :
       {"operator ", "matmul", "adamw_step", "redistribute", "\nmoved between devices ", "\nsend ", "\nall-reduce "})
    EXPECT_NE(result.output.find(expected), std::string::npos) << expected << "\n" << result.output;
  // The last line of the table; the first words are said at the start too, without a measurement.
  const std::string theory =
      std::string("pipeline: ") + GetParam().idle_in_theory + " % of the stages' time idle in theory, ";
  const size_t at = result.output.find(theory);
  ASSERT_NE(at, std::string::npos) << result.output;
  const std::string measured = result.output.substr(at + theory.size());
  EXPECT_NE(measured.find(" % outside kernels as measured\n"), std::string::npos) << measured;
  const double share = std::stod(measured);
  EXPECT_GE(share, 0) << measured;
  EXPECT_LT(share, 100) << measured;
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, ProfileOfAPipeline,
    testing::Values(PipelineRun{"gpipe", {"gpipe"}, 0, "33.3"}, PipelineRun{"one_f_one_b", {"1f1b"}, 3, "33.3"},
                    PipelineRun{"interleaved", {"interleaved", "--virtual-stages", "2"}, 0, "20.0"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace dtorch::test
