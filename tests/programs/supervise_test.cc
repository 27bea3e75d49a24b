// `dtorch_app supervise`: a job that lost a rank, its controller or its launcher goes on from its last checkpoint.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "tests/programs/small_training.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class Supervise : public SmallTraining {
 protected:
  std::vector<std::string> supervised(const std::vector<std::string>& own,
                                      const std::vector<std::string>& command) const {
    std::vector<std::string> all = {"dtorch_app", "supervise", "--result", folder_ + "/end.json"};
    all.insert(all.end(), own.begin(), own.end());
    all.push_back("--");
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }
  nlohmann::json end() const { return nlohmann::json::parse(std::ifstream(folder_ + "/end.json")); }
  // Ranks of the job, in order: the children of mpirun.
  static std::vector<pid_t> ranks_of(pid_t supervisor) {
    std::vector<pid_t> ranks = descendants(supervisor, "dtorch_app");
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }
  void expect_gone(const std::vector<pid_t>& processes) {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    const auto any_left = [&] { return std::any_of(processes.begin(), processes.end(), process_exists); };
    while (any_left() && Clock::now() < deadline) ::usleep(10000);
    EXPECT_FALSE(any_left());
  }
};

int segments_of(const std::string& hexadecimal) {
  int found = 0;
  for (const auto& entry : fs::directory_iterator("/dev/shm"))
    found += entry.path().filename().string().find("." + hexadecimal + ".") != std::string::npos ? 1 : 0;
  return found;
}

std::string environment_of(pid_t process, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  for (std::string line; std::getline(file, line, '\0');) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

enum class Victim { kSubController, kController, kControllerOfRecovery, kLauncher };

class Losses : public Supervise, public testing::WithParamInterface<Victim> {};

TEST_P(Losses, AJobThatLosesAProcessEndsWithTheLossesOfAnUndisturbedOne) {
  const std::vector<std::string> common = {"--steps", "40", "--save-every", "5", "--wait-for-saves", "--metrics"};
  auto command = [&](const std::string& metrics, const std::string& run) {
    std::vector<std::string> more = common;
    more.insert(more.end(), {folder_ + "/" + metrics, "--checkpoint-dir", folder_ + "/" + run});
    // mpirun lets such a job go on without a rank, and returns 0 whatever becomes of it.
    if (GetParam() == Victim::kControllerOfRecovery) more.insert(more.end(), {"--recover", "on"});
    return train(more);
  };
  std::vector<std::string> plain = command("whole.jsonl", "whole");
  plain.insert(plain.begin(), "dtorch_app");
  const ProgramResult whole = run_program(plain, {.np = 2, .mpirun = {"--enable-recovery"}});
  ASSERT_EQ(whole.exit_code, 0) << whole.errors;

  std::vector<pid_t> first;
  std::string job_number;
  ProgramOptions options{.timeout_s = 300};
  options.watch = [&](const std::string& output, pid_t started) {
    if (!first.empty() || !has_step(output, 12)) return;
    first = ranks_of(started);
    ASSERT_EQ(first.size(), 3u);
    std::ostringstream number;
    number << std::hex << std::stoul(environment_of(first[0], "OMPI_MCA_ess_base_jobid"));
    job_number = number.str();
    EXPECT_GT(segments_of(job_number), 0) << job_number;
    pid_t victim = 0;
    for (const pid_t rank : first) {
      const bool is_controller = environment_of(rank, "OMPI_COMM_WORLD_RANK") == "0";
      if (is_controller == (GetParam() != Victim::kSubController)) victim = rank;
    }
    if (GetParam() == Victim::kLauncher) victim = std::stoi(environment_of(victim, "DTORCH_TEST_LAUNCHER"));
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
  };
  // Ranks learn who started them: mpirun is their parent.
  const std::string wrapper = folder_ + "/wrapper";
  std::ofstream(wrapper) << "#!/bin/sh\nexport DTORCH_TEST_LAUNCHER=$PPID\nexec \"$@\"\n";
  fs::permissions(wrapper, fs::perms::owner_all);
  const ProgramResult result =
      run_program(supervised({"--np", "3", "--wrapper", wrapper}, command("part.jsonl", "part")), options);
  ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
  ASSERT_EQ(first.size(), 3u);
  expect_same_losses(folder_ + "/part.jsonl", folder_ + "/whole.jsonl");
  EXPECT_EQ(end().at("status"), "done");
  EXPECT_NE(result.errors.find("starting again from step "), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("2 attempts"), std::string::npos) << result.errors;
  expect_gone(first);
  // This job's segments, by the number that Open MPI gave it.
  EXPECT_EQ(segments_of(job_number), 0);
}

std::string name_of(const testing::TestParamInfo<Victim>& info) {
  constexpr const char* kNames[] = {"SubController", "Controller", "ControllerOfRecovery", "Launcher"};
  return kNames[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Kills, Losses,
                         testing::Values(Victim::kSubController, Victim::kController, Victim::kControllerOfRecovery,
                                         Victim::kLauncher),
                         name_of);

TEST_F(Supervise, AStopSignalSavesAndEndsWithItsCode) {
  bool sent = false;
  ProgramOptions options{.timeout_s = 200};
  options.watch = [&](const std::string& output, pid_t started) {
    if (sent || !has_step(output, 3)) return;
    sent = true;
    ASSERT_EQ(::kill(started, SIGTERM), 0);
  };
  const ProgramResult result = run_program(
      supervised({"--np", "3"}, train({"--steps", "100000", "--checkpoint-dir", folder_ + "/run"})), options);
  EXPECT_EQ(result.exit_code, 77) << result.output << result.errors;
  EXPECT_EQ(end().at("status"), "preempted");
  EXPECT_NE(result.output.find("saved"), std::string::npos) << result.output;
  EXPECT_FALSE(fs::is_empty(folder_ + "/run"));
}

TEST_F(Supervise, AShellsReaderOfItsOutputIsLeftAlone) {
  // The shell forks the reader and then becomes the supervisor: its child, which it didn't start.
  const std::string log = folder_ + "/log";
  const std::vector<std::string> shell = {"bash", "-c", "exec \"$@\" > >(exec cat > '" + log + "') 2>&1", "shell"};
  fs::create_directories(folder_ + "/empty");
  const ProgramResult result = run_program(
      supervised({"--np", "2", "--retries", "1"}, {"generate", "--checkpoint", folder_ + "/empty", "--prompt", "x"}),
      {.timeout_s = 200, .wrapper = shell});
  EXPECT_EQ(result.exit_code, 1);
  std::ifstream file(log);
  const std::string said((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(said.find("given up: 2 attempts in a row"), std::string::npos) << said;
}

TEST_F(Supervise, WhatEndsWellWithoutAResultFileIsDone) {
  const std::vector<std::vector<std::string>> commands = {
      {"devices", "--version"},                        // writes none
      {"devices", "--result", folder_ + "/own.json"},  // asks for another one
      train({"--steps", "2", "--checkpoint-dir", folder_ + "/run", "--result=" + folder_ + "/own.json"}),
  };
  for (const std::vector<std::string>& command : commands) {
    const ProgramResult result = run_program(supervised({"--np", "2"}, command), {.timeout_s = 200});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(end().at("status"), "done") << result.errors;
    EXPECT_NE(result.errors.find("1 attempt"), std::string::npos) << result.errors;
    EXPECT_FALSE(fs::exists(folder_ + "/own.json"));
  }
}

TEST_F(Supervise, TheResultThatTheCommandAsksForIsThatOfAllAttempts) {
  const ProgramResult result = run_program(
      {"dtorch_app", "supervise", "--np", "2", "--", "devices", "--result", folder_ + "/own.json"}, {.timeout_s = 60});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(folder_ + "/own.json")).at("status"), "done");
}

TEST_F(Supervise, AStartThatIsRefusedLeavesNoEarlierResult) {
  for (const std::vector<std::string>& own : {std::vector<std::string>{"--retriez", "2"}, {"--launcher", "ssh"}}) {
    std::ofstream(folder_ + "/end.json") << R"({"code": 0, "status": "done", "reason": ""})";
    const ProgramResult result = run_program(supervised(own, {"devices"}), {.timeout_s = 60});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(end().at("status"), "refused");
  }
  std::ofstream(folder_ + "/end.json") << R"({"code": 0, "status": "done", "reason": ""})";
  const ProgramResult result =
      run_program({"dtorch_app", "devices", "--devices", "many", "--result", folder_ + "/end.json"}, {.timeout_s = 60});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(end().at("status"), "refused");
}

TEST_F(Supervise, SignalsOfATerminalThatGoesAwayAskItToStop) {
  for (const int signal : {SIGHUP, SIGQUIT}) {
    bool sent = false;
    ProgramOptions options{.timeout_s = 200};
    options.watch = [&](const std::string& output, pid_t started) {
      if (sent || !has_step(output, 3)) return;
      sent = true;
      ASSERT_EQ(::kill(started, signal), 0);
    };
    const ProgramResult result = run_program(
        supervised({"--np", "2"}, train({"--steps", "100000", "--checkpoint-dir", folder_ + "/run"})), options);
    EXPECT_EQ(result.exit_code, 77) << result.output << result.errors;
    fs::remove_all(folder_ + "/run");
  }
}

TEST_F(Supervise, ItsEndByForceEndsTheRanks) {
  std::vector<pid_t> ranks;
  ProgramOptions options{.timeout_s = 200};
  options.watch = [&](const std::string& output, pid_t started) {
    if (!ranks.empty() || !has_step(output, 3)) return;
    ranks = ranks_of(started);
    ASSERT_EQ(::kill(started, SIGKILL), 0);
  };
  const ProgramResult result = run_program(
      supervised({"--np", "3"}, train({"--steps", "100000", "--checkpoint-dir", folder_ + "/run"})), options);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  ASSERT_EQ(ranks.size(), 3u);
  expect_gone(ranks);
}

TEST_F(Supervise, AStopSignalThatComesBeforeTheLauncherIsReadyIsNotLost) {
  // Drops the first signal, as a launcher does that hasn't come far yet.
  const std::string path = std::getenv("PATH");
  std::ofstream(folder_ + "/mpirun") << "#!/bin/sh\ntrap taken=1 USR1\necho started\n"
                                        "while [ -z \"$taken\" ]; do sleep 0.05; done\n"
                                        "trap '' USR1\nPATH='"
                                     << path << "'\nexec mpirun \"$@\"\n";
  fs::permissions(folder_ + "/mpirun", fs::perms::owner_all);
  bool sent = false;
  ProgramOptions options{.timeout_s = 200, .wrapper = {"env", "PATH=" + folder_ + ":" + path}};
  options.watch = [&](const std::string& output, pid_t started) {
    if (sent || output.find("started") == std::string::npos) return;
    sent = true;
    ASSERT_EQ(::kill(started, SIGTERM), 0);
  };
  const ProgramResult result = run_program(
      supervised({"--np", "2"}, train({"--steps", "100000", "--checkpoint-dir", folder_ + "/run"})), options);
  EXPECT_EQ(result.exit_code, 77) << result.output << result.errors;
  EXPECT_EQ(end().at("status"), "preempted");
}

TEST_F(Supervise, ALauncherThatDoesNotEndAfterRankZeroIsEnded) {
  const std::string path = std::getenv("PATH");
  std::ofstream(folder_ + "/mpirun") << "#!/bin/sh\nPATH='" << path << "'\nmpirun \"$@\"\nexec sleep 100000\n";
  fs::permissions(folder_ + "/mpirun", fs::perms::owner_all);
  bool killed = false;
  ProgramOptions options{.timeout_s = 300, .wrapper = {"env", "PATH=" + folder_ + ":" + path}};
  options.watch = [&](const std::string& output, pid_t started) {
    if (killed || !has_step(output, 12)) return;
    killed = true;
    for (const pid_t rank : ranks_of(started)) {
      if (environment_of(rank, "OMPI_COMM_WORLD_RANK") != "0") continue;
      ASSERT_EQ(::kill(rank, SIGKILL), 0);
    }
  };
  const ProgramResult result =
      run_program(supervised({"--np", "2"}, train({"--steps", "30", "--save-every", "5", "--wait-for-saves",
                                                   "--checkpoint-dir", folder_ + "/run"})),
                  options);
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_NE(result.errors.find("rank 0 ended without a word; mpirun didn't"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("2 attempts"), std::string::npos) << result.errors;
}

TEST_F(Supervise, AHostThatCanNotBeReachedIsLeftOutWhileThereIsASpare) {
  for (const std::string spares : {"1", "0"}) {
    const ProgramResult result = run_program(
        supervised({"--hosts", "localhost,nowhere.invalid", "--spares", spares}, {"devices"}), {.timeout_s = 150});
    EXPECT_EQ(result.exit_code, spares == "1" ? 0 : 1) << result.errors;
    EXPECT_NE(result.errors.find("host nowhere.invalid"), std::string::npos) << result.errors;
    EXPECT_EQ(end().at("status"), spares == "1" ? "done" : "refused");
  }
}

TEST_F(Supervise, AFailureAfterAStopSignalKeepsItsCode) {
  // The program fails by itself, whatever it is asked; that it began is known by the file.
  const std::string wrapper = folder_ + "/wrapper";
  std::ofstream(wrapper) << "#!/bin/sh\ntrap '' USR1\necho started\nwhile [ ! -e " << folder_
                         << "/go ]; do sleep 0.05; done\nexec \"$@\"\n";
  fs::permissions(wrapper, fs::perms::owner_all);
  fs::create_directories(folder_ + "/empty");
  bool sent = false;
  ProgramOptions options{.timeout_s = 200};
  options.watch = [&](const std::string& output, pid_t started) {
    if (sent || output.find("started") == std::string::npos) return;
    sent = true;
    ASSERT_EQ(::kill(started, SIGTERM), 0);
    std::ofstream(folder_ + "/go") << "on";
  };
  const ProgramResult result =
      run_program(supervised({"--np", "1", "--wrapper", wrapper},
                             {"generate", "--checkpoint", folder_ + "/empty", "--prompt", "x"}),
                  options);
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_EQ(end().at("status"), "failed") << result.errors;
  EXPECT_NE(result.errors.find("1 attempt)"), std::string::npos) << result.errors;
}

TEST_F(Supervise, TheTimeOverAllAttemptsEndsItLikeASignal) {
  const ProgramResult result =
      run_program(supervised({"--np", "2", "--stop-after", "3s"},
                             train({"--steps", "100000", "--checkpoint-dir", folder_ + "/run"})),
                  {.timeout_s = 200});
  EXPECT_EQ(result.exit_code, 77) << result.output << result.errors;
  EXPECT_NE(result.errors.find("the time is over"), std::string::npos) << result.errors;
}

TEST_F(Supervise, WhatFailsEveryTimeIsGivenUpWithTheCause) {
  fs::create_directories(folder_ + "/empty");
  const ProgramResult result = run_program(
      supervised({"--np", "2", "--retries", "1"}, {"generate", "--checkpoint", folder_ + "/empty", "--prompt", "x"}),
      {.timeout_s = 200});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("given up: 2 attempts in a row"), std::string::npos) << result.errors;
  EXPECT_EQ(end().at("status"), "failed");
  EXPECT_NE(std::string(end().at("reason")).find("no complete checkpoint"), std::string::npos);
}

TEST_F(Supervise, WhatIsRefusedIsNotTriedAgain) {
  struct {
    std::vector<std::string> own, command;
    const char* says;
  } const cases[] = {
      {{"--np", "2"}, train({"--stepz", "3"}), "did you mean --steps?"},
      {{"--np", "2"}, train({"--steps", "3"}), "needs --checkpoint-dir"},
      {{"--np", "2"}, train({"--pp", "2", "--checkpoint-dir", folder_ + "/run"}), "isn't the job's 4 devices"},
      {{"--np", "2"}, train({"--checkpoint-dir", folder_ + "/run", "--min-free", "8796093022208"}), "less than 2^43"},
      {{"--np", "2"}, {"devices", "--result", "a", "--result=b"}, "--result is given twice"},
      {{"--np", "2"}, {}, "supervise which command?"},
      {{"--np", "2"}, {"devices", "--devices", "many"}, "--devices is 'many'"},
      {{"--np", "2"}, {"generate", "--promt", "x"}, "did you mean --prompt?"},
      {{"--np", "2", "--elastic"}, train({"--checkpoint-dir", folder_ + "/run"}), "without --devices and --dp"},
      {{"--launcher", "ssh"}, {"devices"}, "must be mpirun or srun"},
      {{"--hosts", "localhost", "--spares", "1"}, {"devices"}, "must leave at least one"},
  };
  for (const auto& wrong : cases) {
    const ProgramResult result = run_program(supervised(wrong.own, wrong.command), {.timeout_s = 60});
    EXPECT_EQ(result.exit_code, 1) << wrong.says;
    EXPECT_NE(result.errors.find(wrong.says), std::string::npos) << result.errors;
    EXPECT_EQ(result.errors.find("starting again"), std::string::npos) << result.errors;
    if (!wrong.command.empty()) {
      EXPECT_EQ(end().at("status"), "refused") << result.errors;
    }
  }
}

TEST_F(Supervise, AHostWhereTheProgramDoesNotStartIsNamedBeforeAnythingBegins) {
  // Stands for a host that lacks a library: the loader's own words, and its exit code.
  const std::string wrapper = folder_ + "/wrapper";
  std::ofstream(wrapper) << "#!/bin/sh\necho \"$1: error while loading shared libraries: libx.so.1: cannot open shared "
                            "object file\" >&2\nexit 127\n";
  fs::permissions(wrapper, fs::perms::owner_all);
  const ProgramResult result =
      run_program(supervised({"--hosts", "localhost", "--wrapper", wrapper}, {"devices"}), {.timeout_s = 60});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.errors.find("the program doesn't start on host localhost"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("libx.so.1"), std::string::npos) << result.errors;
}

}  // namespace
}  // namespace dtorch::test
