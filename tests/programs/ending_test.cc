// How jobs end: exit codes, the first cause on stderr, nothing left running within 10 s.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "tests/programs/small_training.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

class Ending : public SmallTraining {
 protected:
  // The whole command.
  std::vector<std::string> train(const std::vector<std::string>& more) const {
    std::vector<std::string> command = SmallTraining::train(more);
    command.insert(command.begin(), "dtorch_app");
    return command;
  }
};

TEST_F(Ending, StopSignalsSaveAtTheNextStepAndResumeGoesOnWithTheSameLosses) {
  const std::vector<std::string> common = {"--steps", "40", "--metrics"};
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
    expect_same_losses(folder_ + "/" + metrics, folder_ + "/whole.jsonl");
  }
}

TEST_F(Ending, AStopThatComesInTheFinalValidationEndsIt) {
  std::vector<std::string> command = train({"--steps", "3", "--checkpoint-dir", folder_ + "/run"});
  *(std::ranges::find(command, "--validation-share") + 1) = "0.9";  // some hundred batches
  bool sent = false;
  ProgramOptions options{.np = 3};
  options.watch = [&](const std::string& output, pid_t started) {
    if (sent || !has_step(output, 3)) return;
    sent = true;
    ASSERT_EQ(::kill(started, SIGUSR1), 0);
  };
  const ProgramResult ended = run_program(command, options);
  ASSERT_TRUE(sent);
  EXPECT_EQ(ended.exit_code, 0) << "all steps are done and saved: " << ended.errors;
  EXPECT_NE(ended.output.find("step 3: validation left out: asked to stop"), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("step 3: saved "), std::string::npos) << ended.output;
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
      {train({"--checkpoint-dir", folder_ + "/text.txt/run"}), "/text.txt/run': Not a directory"},
      {train({"--steps", "%value%"}),
       "the argument for option '--steps' is invalid"},  // a name in the messages of Boost
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

TEST_F(Ending, ACheckpointOfFourNodesGoesOnWithThreeOrFiveAndTheSameBatches) {
  // One device a node, dp follows; 12 sequences a step, also where 5 doesn't divide them.
  const std::vector<std::string> common = {"dtorch_app",
                                           "train",
                                           "--data",
                                           folder_ + "/text.h5",
                                           "--dim",
                                           "32",
                                           "--layers",
                                           "2",
                                           "--heads",
                                           "2",
                                           "--length",
                                           "16",
                                           "--batch",
                                           "12",
                                           "--dtype",
                                           "float64",
                                           "--validation-share",
                                           "0",
                                           "--lr-schedule",
                                           "constant"};
  const auto run = [&](int np, const std::string& metrics, std::vector<std::string> more) {
    std::vector<std::string> command = common;
    more.insert(more.end(), {"--metrics", folder_ + "/" + metrics});
    command.insert(command.end(), more.begin(), more.end());
    const ProgramResult result = run_program(command, {.np = np});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  };
  run(5, "whole.jsonl", {"--steps", "12"});
  const std::map<int64_t, double> expected = losses(folder_ + "/whole.jsonl");
  ASSERT_EQ(expected.size(), 12u);
  for (const int nodes : {3, 5}) {
    const std::string saved = folder_ + "/run" + std::to_string(nodes), metrics = std::to_string(nodes) + ".jsonl";
    run(5, metrics, {"--steps", "6", "--checkpoint-dir", saved});
    const std::string said = run(nodes + 1, metrics, {"--steps", "12", "--checkpoint-dir", saved, "--resume"});
    EXPECT_NE(said.find("dp=" + std::to_string(nodes)), std::string::npos) << said;
    EXPECT_NE(said.find("going on at step 6"), std::string::npos) << said;
    const std::map<int64_t, double> found = losses(folder_ + "/" + metrics);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [step, loss] : expected) EXPECT_NEAR(found.at(step), loss, 1e-9 * loss) << "step " << step;
  }
}

TEST_F(Ending, TheTimeOfTheRunItselfEndsItAsASignalDoes) {
  const std::string result_file = folder_ + "/end.json";
  const ProgramResult result = run_program(
      train({"--steps", "100000", "--checkpoint-dir", folder_ + "/run", "--stop-after", "2s", "--result", result_file}),
      {.np = 2});
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 77) << result.errors;
  EXPECT_NE(result.output.find("asked to stop"), std::string::npos) << result.output;
  const auto end = nlohmann::json::parse(std::ifstream(result_file));
  EXPECT_EQ(end.at("code"), 77);
  EXPECT_EQ(end.at("status"), "preempted");
}

TEST_F(Ending, TheResultFileSaysHowAJobEnded) {
  const std::string result_file = folder_ + "/end.json";
  struct {
    std::vector<std::string> command;
    int code;
    const char *status, *reason;
  } const cases[] = {
      {train({"--steps", "2"}), 0, "done", ""},
      {train({"--steps", "2", "--batch", "0"}), 1, "refused", "--batch"},
      {{"dtorch_app", "generate", "--checkpoint", folder_, "--prompt", "x"}, 1, "failed", "no complete checkpoint"},
  };
  for (const auto& one : cases) {
    for (const int np : {0, 2}) {
      std::vector<std::string> command = one.command;
      command.insert(command.end(), {"--result", result_file});
      std::ofstream(result_file) << "left by another job";
      const ProgramResult result = run_program(command, {.np = np});
      EXPECT_EQ(result.exit_code, one.code) << result.errors;
      const auto end = nlohmann::json::parse(std::ifstream(result_file));
      EXPECT_EQ(end.at("code"), one.code);
      EXPECT_EQ(end.at("status"), one.status);
      EXPECT_NE(std::string(end.at("reason")).find(one.reason), std::string::npos) << end;
    }
  }
  const ProgramResult wrong = run_program({"dtorch_app", "devices", "--result", folder_ + "/none/end.json"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_NE(wrong.errors.find("--result: cannot write"), std::string::npos) << wrong.errors;
}

TEST_F(Ending, AKilledJobLeavesNoResult) {
  const std::string result_file = folder_ + "/end.json";
  bool killed = false;
  ProgramOptions options{.np = 3};
  options.watch = [&](const std::string& output, pid_t started) {
    if (killed || !has_step(output, 2)) return;
    killed = true;
    for (const pid_t rank : descendants(started, "dtorch_app")) ASSERT_EQ(::kill(rank, SIGKILL), 0);
  };
  std::ofstream(result_file) << "left by another job";
  const ProgramResult result = run_program(train({"--steps", "100000", "--result", result_file}), options);
  ASSERT_TRUE(killed);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_FALSE(fs::exists(result_file));
}

TEST_F(Ending, ADiskThatIsNearlyFullSavesAtTheNextStepAndEnds) {
  const std::string saved = folder_ + "/saved";
  const std::string more_than_any_disk_has = std::to_string(int64_t{1} << 40);
  const ProgramResult first = run_program(train({"--steps", "2", "--checkpoint-dir", saved}), {.np = 2});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  // Full at the start: nothing is done. The scarcity that comes later is DiskWatch's, in its own test.
  const ProgramResult second = run_program(
      train({"--steps", "4", "--checkpoint-dir", saved, "--resume", "--min-free", more_than_any_disk_has}), {.np = 2});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_NE(second.errors.find("the disk is nearly full"), std::string::npos) << second.errors;
  EXPECT_NE(second.errors.find("saved at step 2"), std::string::npos) << second.errors;
}

}  // namespace
}  // namespace dtorch::test
