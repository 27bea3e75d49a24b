// Jobs that are held up: who holds them up is named, and after the deadline they end with that. And what a job says
// when it is asked what it is doing.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <sstream>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

constexpr int kDeadlinePassed = 79;

std::vector<std::string> stalling(std::vector<std::string> more) {
  std::vector<std::string> command = {"stalling_program", "--devices", "8"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// The first line of `text` that contains `word`.
std::string line_with(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(word) != std::string::npos) return line;
  }
  return "";
}

struct StalledJob {
  const char* name;
  int np;
  std::vector<std::string> options;
  const char* node;  // of device 5
};

class StalledKernel : public testing::TestWithParam<StalledJob> {};

TEST_P(StalledKernel, IsNamedWithNodeDeviceOperatorAndLineAndEndsTheJobAfterTheDeadline) {
  std::vector<std::string> command = stalling({"kernel", "--stall-report", "1", "--deadline", "3"});
  command.insert(command.end(), GetParam().options.begin(), GetParam().options.end());
  const ProgramResult result = run_program(command, {.np = GetParam().np, .timeout_s = 60});
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.output.find("round 2"), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find("round 3"), std::string::npos) << result.output;
  // Once as a warning, before the deadline, and once as the end's cause.
  const size_t warned = result.errors.find("[warning] nothing has finished for ");
  const size_t ended = result.errors.find("error: nothing has finished for ");
  ASSERT_NE(warned, std::string::npos) << result.errors;
  ASSERT_NE(ended, std::string::npos) << result.errors;
  EXPECT_LT(warned, ended);
  EXPECT_LT(std::stod(result.errors.substr(warned + std::string("[warning] nothing has finished for ").size())), 3.0);
  for (const size_t from : {warned, ended}) {
    const std::string text = result.errors.substr(from);
    const std::string culprit = line_with(text, "is still in");
    EXPECT_NE(culprit.find(std::string(GetParam().node) + " device 5 is still in [stall] #"), std::string::npos)
        << text;
    EXPECT_NE(culprit.find("stalling_main.cc:"), std::string::npos) << text;
    const std::string waiting = line_with(text, "wait for [");
    EXPECT_NE(waiting.find("devices 0, 1, 2, 3, 4, 6, 7 wait for [redistribute] #"), std::string::npos) << text;
    EXPECT_NE(text.find("waits for the value of device 5"), std::string::npos) << text;
  }
  if (GetParam().np == 0) {
    EXPECT_EQ(result.exit_code, kDeadlinePassed);
  } else {
    EXPECT_NE(result.exit_code, 0) << "mpirun's own code";
  }
}

// Three nodes with a fan-out of 2 hang from node 0, which acknowledges for all.
INSTANTIATE_TEST_SUITE_P(Ranks, StalledKernel,
                         testing::Values(StalledJob{"Np0", 0, {}, "node 0"}, StalledJob{"Np3", 3, {}, "node 1"},
                                         StalledJob{"Nodes3InATree", 0, {"--nodes", "3", "--fan-out", "2"}, "node 1"}),
                         [](const auto& info) { return info.param.name; });

TEST(StoppedNode, IsNamedAndEndsTheJobAfterTheDeadline) {
  std::vector<pid_t> ranks;
  ProgramOptions options{.np = 3, .timeout_s = 60};
  options.watch = [&](const std::string& output, pid_t started) {
    if (!ranks.empty() || output.find("round 2\n") == std::string::npos) return;
    ranks = descendants(started, "stalling_program");
    std::sort(ranks.begin(), ranks.end());
    ASSERT_EQ(ranks.size(), 3u);
    ASSERT_EQ(::kill(ranks[2], SIGSTOP), 0);
  };
  const ProgramResult result = run_program(stalling({"none", "--stall-report", "1", "--deadline", "3"}), options);
  EXPECT_FALSE(result.timed_out);
  ASSERT_EQ(ranks.size(), 3u);
  const size_t warned = result.errors.find("[warning] nothing has finished for ");
  ASSERT_NE(warned, std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("node 1 doesn't answer; it owes ", warned), std::string::npos) << result.errors;
  const size_t ended = result.errors.find("error: nothing has finished for ");
  ASSERT_NE(ended, std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("node 1 doesn't answer", ended), std::string::npos) << result.errors;
  EXPECT_NE(result.exit_code, 0);
  for (const pid_t rank : ranks) ::kill(rank, SIGKILL);  // of a job that didn't end as it should
}

TEST(Status, IsPrintedForEveryNodeWhenAJobIsAskedAndTheJobGoesOn) {
  for (const int np : {0, 3}) {
    // Asked while device 5 holds it up, when the answer is known. mpirun passes the signal on to all ranks.
    bool asked = false;
    ProgramOptions options{.np = np, .timeout_s = 60};
    options.watch = [&](const std::string& output, pid_t started) {
      if (asked || output.find("round 2\n") == std::string::npos) return;
      asked = true;
      ASSERT_EQ(::kill(started, SIGUSR2), 0);
    };
    const ProgramResult result = run_program(stalling({"kernel", "--stall-report", "0", "--deadline", "4"}), options);
    ASSERT_TRUE(asked);
    const size_t status = result.errors.find("status: ");
    ASSERT_NE(status, std::string::npos) << result.errors;
    EXPECT_LT(status, result.errors.find("error: ")) << result.errors;
    const std::string text = result.errors.substr(status, result.errors.find("error: ") - status);
    EXPECT_NE(text.find("device 5 is still in [stall] #"), std::string::npos) << text;
    EXPECT_EQ(result.errors.find("[warning] nothing has finished"), std::string::npos) << result.errors;
  }
}

}  // namespace
}  // namespace dtorch::test
