// How jobs end: exit codes, the first cause on stderr, nothing left running within 10 s.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

// A token file of a little repetitive text, and a folder for a run.
class Ending : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("ending");
    std::ofstream text(folder_ + "/text.txt");
    for (int i = 0; i < 2000; ++i) text << "line " << i * 7919 % 1000 << " of a small text.\n";
    text.close();
    const ProgramResult prepared =
        run_program({"dtorch_app", "prepare", "--text", folder_ + "/text.txt", "--out", folder_ + "/text.h5"});
    ASSERT_EQ(prepared.exit_code, 0) << prepared.errors;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::string> train(std::vector<std::string> more) const {
    std::vector<std::string> command = {"dtorch_app",  "train", "--data",    folder_ + "/text.h5",
                                        "--dim",       "32",    "--layers",  "2",
                                        "--heads",     "2",     "--length",  "32",
                                        "--batch",     "4",     "--devices", "4",
                                        "--dp",        "2",     "--tp",      "2",
                                        "--log-every", "1"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::string folder_;
};

bool has_step(const std::string& output, int step) {
  return output.find("] " + std::to_string(step) + "/") != std::string::npos;
}

TEST_F(Ending, StopSignalsSaveAtTheNextStepAndResumeGoesOnWithTheSameLosses) {
  const std::vector<std::string> common = {"--steps", "40", "--validation-share", "0", "--metrics"};
  auto command = [&](const std::string& metrics, std::vector<std::string> more) {
    std::vector<std::string> all = train(common);
    all.push_back(folder_ + "/" + metrics);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const ProgramResult whole = run_program(command("whole.jsonl", {}), {.np = 3});
  ASSERT_EQ(whole.exit_code, 0) << whole.errors;
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
    const std::string saved = folder_ + "/run" + std::to_string(signal),
                      metrics = "part" + std::to_string(signal) + ".jsonl";
    bool sent = false;
    // SIGTERM and SIGINT go to rank 0 itself here: mpirun answers those of its own by ending the job.
    ProgramOptions options{.np = 3};
    options.watch = [&](const std::string& output, pid_t started) {
      if (sent || !has_step(output, 5)) return;
      sent = true;
      const std::vector<pid_t> ranks = descendants(started, "dtorch_app");
      ASSERT_EQ(ranks.size(), 3u);
      ASSERT_EQ(::kill(signal == SIGUSR1 ? started : *std::min_element(ranks.begin(), ranks.end()), signal), 0);
    };
    const ProgramResult part = run_program(command(metrics, {"--checkpoint-dir", saved}), options);
    ASSERT_TRUE(sent);
    EXPECT_FALSE(part.timed_out);
    EXPECT_NE(part.exit_code, 0) << "a run that was stopped says so";
    EXPECT_NE(part.output.find("asked to stop"), std::string::npos) << part.output << part.errors;
    const ProgramResult rest = run_program(command(metrics, {"--checkpoint-dir", saved, "--resume"}), {.np = 2});
    ASSERT_EQ(rest.exit_code, 0) << rest.errors;
    // Losses by step, the interrupted run's and its continuation's together.
    auto losses = [&](const std::string& name) {
      std::map<int64_t, double> out;
      std::ifstream file(folder_ + "/" + name);
      for (std::string line; std::getline(file, line);) {
        const auto json = nlohmann::json::parse(line);
        out[json.at("step")] = json.at("loss");
      }
      return out;
    };
    EXPECT_EQ(losses(metrics), losses("whole.jsonl"));
  }
}

TEST_F(Ending, AKilledRankEndsTheJobWithinTenSecondsWithTheCause) {
  for (const size_t victim : {size_t{0}, size_t{1}, size_t{2}}) {
    std::vector<pid_t> ranks;
    std::chrono::steady_clock::time_point killed;
    ProgramOptions options{.np = 3};
    options.watch = [&](const std::string& output, pid_t started) {
      if (!ranks.empty() || !has_step(output, 2)) return;
      ranks = descendants(started, "dtorch_app");
      std::sort(ranks.begin(), ranks.end());
      ASSERT_EQ(ranks.size(), 3u);
      killed = std::chrono::steady_clock::now();
      ASSERT_EQ(::kill(ranks[victim], SIGKILL), 0);
    };
    const ProgramResult result = run_program(train({"--steps", "100000"}), options);
    const double after = std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count();
    ASSERT_EQ(ranks.size(), 3u) << result.output << result.errors;
    EXPECT_FALSE(result.timed_out);
    EXPECT_LT(after, 10);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.errors.find("signal 9"), std::string::npos) << result.errors;
    // mpirun may be gone before the last rank is.
    auto any_left = [&] { return std::any_of(ranks.begin(), ranks.end(), process_exists); };
    while (any_left() && std::chrono::steady_clock::now() - killed < std::chrono::seconds(10)) ::usleep(10000);
    EXPECT_FALSE(any_left());
  }
}

TEST_F(Ending, WrongInputIsOneSentenceAndExitCodeOne) {
  // An option given twice is wrong by itself, so cases of a layout begin without one.
  const auto with_layout = [&](std::vector<std::string> more) {
    std::vector<std::string> command = {"dtorch_app", "train", "--data", folder_ + "/text.h5", "--devices", "4"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  const std::string two_to_32 = "4294967296";  // its square is 0 in 64 bits
  struct {
    std::vector<std::string> command;
    const char* says;
  } const cases[] = {
      {{"dtorch_app", "train", "--data", folder_ + "/none.h5"}, "none.h5"},
      {{"dtorch_app", "train", "--data", folder_ + "/text.txt"}, "text.txt"},
      {train({"--stepz", "3"}), "did you mean --steps?"},
      {train({"--steps", "many"}), "steps"},
      {with_layout({"--dp", "3", "--tp", "2"}), "legal are 1, 2, 4"},
      {with_layout({"--pp", two_to_32, "--cp-ring", two_to_32}), "legal are 1, 2, 4"},
      {with_layout({"--dp", two_to_32, "--tp", two_to_32}), "legal are 1, 2, 4"},
      {with_layout({"--accumulate", two_to_32, "--micro-batches", two_to_32}), "must divide --batch"},
      {{"dtorch_app", "trian"}, "did you mean train?"},
      {{"dtorch_app", "generate", "--checkpoint", folder_, "--prompt", "x"}, "no complete checkpoint"},
  };
  for (const auto& wrong : cases) {
    for (const int np : {0, 2}) {
      const ProgramResult result = run_program(wrong.command, {.np = np, .timeout_s = 60});
      EXPECT_EQ(result.exit_code, 1) << wrong.says << result.errors;
      EXPECT_EQ(result.errors.find("error: "), result.errors.rfind("error: ")) << result.errors;
      EXPECT_NE(result.errors.find(wrong.says), std::string::npos) << result.errors;
      EXPECT_FALSE(result.timed_out);
    }
  }
}

TEST_F(Ending, AFullDiskFailsTheSaveAndKeepsTheCheckpointBefore) {
  // A limit of the files' size stands for the disk: writes fail part of the way, whoever runs the test.
  const std::string saved = folder_ + "/saved";
  const ProgramResult first = run_program(train({"--steps", "2", "--checkpoint-dir", saved}), {.np = 2});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  const ProgramResult second =
      run_program(train({"--steps", "4", "--checkpoint-dir", saved, "--resume"}), {.file_size_limit_kib = 40});
  EXPECT_EQ(second.exit_code, 1) << second.output;
  EXPECT_NE(second.errors.find("cannot write"), std::string::npos) << second.errors;
  const ProgramResult third = run_program(train({"--steps", "4", "--checkpoint-dir", saved, "--resume"}), {.np = 2});
  EXPECT_EQ(third.exit_code, 0) << third.errors;
  EXPECT_NE(third.output.find("going on at step 2"), std::string::npos) << third.output;
}

}  // namespace
}  // namespace dtorch::test
