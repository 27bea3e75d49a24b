// Jobs that lose Sub-Controllers and go on: killed or stopped at seeded moments of a step, two at once, one more while
// the job recovers, in a save. The losses are those of a run that nothing happened to, to the last bit, and nothing is
// left. scripts/fault_table.py does the same many times, and measures.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <sstream>

#include "tests/programs/small_training.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kNodes = 3, kSteps = 40;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string environment_of(pid_t process, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ");
  for (std::string line; std::getline(file, line, '\0');) {
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

std::vector<std::string> segments_of(const std::string& job) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("." + job + ".") != std::string::npos) found.push_back(entry.path());
  }
  return found;
}

int count_of(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

// The last step that a run's output tells of.
int last_step(const std::string& output) {
  const std::string mark = "/" + std::to_string(kSteps);
  const size_t at = output.rfind(mark);
  const size_t begin = at == std::string::npos ? at : output.rfind("] ", at);
  return begin == std::string::npos ? 0 : std::atoi(output.c_str() + begin + 2);
}

struct Fault {
  std::string name;
  int signal = SIGKILL;
  std::vector<int> nodes = {};           // all at once
  int step = 0;                          // begins when this one has been told
  double part_of_step = 0;               // and this part of a step later
  std::vector<int> while_recovers = {};  // nodes killed when the loss of the first is told
};

class Recovery : public SmallTraining {
 protected:
  struct Run {
    ProgramResult result;
    std::vector<pid_t> ranks;
    std::string job;  // Open MPI's number of it, hexadecimal
    std::optional<Clock::time_point> began, noticed, again;
  };

  std::vector<std::string> command(const std::string& name) const {
    std::vector<std::string> all =
        train({"--steps", std::to_string(kSteps), "--dtype", "float64", "--zero", "2", "--metrics",
               folder_ + "/" + name + ".jsonl", "--checkpoint-dir", folder_ + "/" + name, "--save-every", "10"});
    all.insert(all.begin(), "dtorch_app");
    return all;
  }

  // The same for all tests, which share it.
  std::map<int64_t, double> undisturbed() {
    static std::map<int64_t, double> found;
    if (!found.empty()) return found;
    const ProgramResult whole = run_program(command("whole"));
    EXPECT_EQ(whole.exit_code, 0) << whole.errors;
    return found = losses(folder_ + "/whole.jsonl");
  }

  // `environment`: of node 1, "NAME=value".
  Run run(const Fault& fault, int spares, const std::string& environment = "") {
    std::vector<std::string> all = command("part");
    const std::vector<std::string> more = {"--recover",        "on", "--spares", std::to_string(spares),
                                           "--snapshot-every", "4",  "--result", folder_ + "/end.json"};
    all.insert(all.end(), more.begin(), more.end());
    Run run;
    double step_s = 0;
    Clock::time_point step_at;
    int seen = 0;
    std::optional<Clock::time_point> begin;
    ProgramOptions options{.np = kNodes + 1 + spares, .timeout_s = 400, .mpirun = {"--enable-recovery"}};
    // What is said of losses is among the steps then.
    options.wrapper = {
        "sh", "-c",
        "test \"$OMPI_COMM_WORLD_RANK\" != 2 || export DTORCH_RECOVERY_TEST=1 " + environment + "; exec \"$@\" 2>&1",
        "sh"};
    options.watch = [&](const std::string& output, pid_t started) {
      const auto now = Clock::now();
      const int step = last_step(output);
      if (step > seen) {
        step_s = seconds_between(step_at, now) / (step - seen);
        step_at = now;
        seen = step;
        if (run.noticed && !run.again) run.again = now;
      }
      if (run.ranks.empty() && step > 0) find_ranks(run, started);
      if (!begin && step >= fault.step && !fault.nodes.empty())
        begin = now +
                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(fault.part_of_step * step_s));
      if (!run.began && begin && now >= *begin) {
        run.began = now;
        for (int node : fault.nodes) ASSERT_EQ(::kill(run.ranks.at(static_cast<size_t>(node) + 1), fault.signal), 0);
      }
      if (!run.noticed && output.find(" is lost (") != std::string::npos) {
        run.noticed = now;
        if (!run.began) run.began = now;
        for (int node : fault.while_recovers)
          ASSERT_EQ(::kill(run.ranks.at(static_cast<size_t>(node) + 1), SIGKILL), 0);
      }
    };
    run.result = run_program(all, options);
    return run;
  }

  static void find_ranks(Run& run, pid_t started) {
    for (const pid_t process : descendants(started, "dtorch_app")) {
      const std::string rank = environment_of(process, "OMPI_COMM_WORLD_RANK");
      if (rank.empty()) continue;
      run.ranks.resize(std::max(run.ranks.size(), std::stoul(rank) + 1));
      run.ranks[std::stoul(rank)] = process;
      std::ostringstream number;
      number << std::hex << std::stoul(environment_of(process, "OMPI_MCA_ess_base_jobid"));
      run.job = number.str();
    }
  }

  void expect_recovered(const Fault& fault, const Run& run, const std::map<int64_t, double>& wanted) {
    SCOPED_TRACE(fault.name + ", node " + std::to_string(fault.nodes.empty() ? -1 : fault.nodes[0]) + " at step " +
                 std::to_string(fault.step));
    const std::string& output = run.result.output;
    EXPECT_FALSE(run.result.timed_out) << output;
    ASSERT_TRUE(fs::exists(folder_ + "/end.json")) << output;
    EXPECT_EQ(nlohmann::json::parse(std::ifstream(folder_ + "/end.json")).at("status"), "done") << output;
    EXPECT_EQ(losses(folder_ + "/part.jsonl"), wanted) << output;
    ASSERT_TRUE(run.began && run.noticed && run.again) << "nothing was lost: " << output;
    EXPECT_GE(count_of(output, "under way again after"), 1) << output;
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    const auto any_left = [&] { return std::ranges::any_of(run.ranks, process_exists); };
    while (any_left() && Clock::now() < deadline) ::usleep(10000);
    EXPECT_FALSE(any_left());
    EXPECT_EQ(segments_of(run.job), std::vector<std::string>());
  }

  void expect_recovers(const Fault& fault, int spares, const std::string& environment = "") {
    const std::map<int64_t, double> wanted = undisturbed();
    ASSERT_EQ(wanted.size(), static_cast<size_t>(kSteps));
    expect_recovered(fault, run(fault, spares, environment), wanted);
    for (const char* left : {"/part", "/part.jsonl", "/end.json"}) fs::remove_all(folder_ + left);
  }
};

// Moments and victims by a seed, so that a failure can be repeated.
class Moments {
 public:
  explicit Moments(unsigned seed) : random_(seed) {}
  Fault fault(const std::string& name, int signal, std::vector<int> nodes) {
    return {.name = name,
            .signal = signal,
            .nodes = std::move(nodes),
            .step = std::uniform_int_distribution(2, kSteps - 15)(random_),
            .part_of_step = std::uniform_real_distribution(0.0, 1.0)(random_)};
  }
  int node() { return std::uniform_int_distribution(0, kNodes - 1)(random_); }

 private:
  std::mt19937 random_;
};

TEST_F(Recovery, AKilledSubControllerIsReplacedByASpare) {
  Moments moments(1);
  const int node = moments.node();
  expect_recovers(moments.fault("kill -9 of a Sub-Controller, a spare", SIGKILL, {node}), 1);
}

TEST_F(Recovery, WithoutASpareTheOthersTakeItsDevices) {
  Moments moments(2);
  const int node = moments.node();
  expect_recovers(moments.fault("kill -9 of a Sub-Controller, no spare", SIGKILL, {node}), 0);
}

TEST_F(Recovery, AStoppedSubControllerIsGivenUpAndEnded) {
  Moments moments(3);
  const int node = moments.node();
  expect_recovers(moments.fault("SIGSTOP of a Sub-Controller", SIGSTOP, {node}), 1);
}

// Any two of three: also those that are the only ones to hold a tensor parallel shard.
TEST_F(Recovery, TwoAtOnceWithTwoSpares) {
  for (int first = 0; first < kNodes; ++first) {
    Moments moments(4 + static_cast<unsigned>(first));
    expect_recovers(moments.fault("kill -9 of two Sub-Controllers", SIGKILL, {first, (first + 1) % kNodes}), 2);
  }
}

TEST_F(Recovery, AnotherOneWhileTheJobRecovers) {
  Moments moments(7);
  Fault fault = moments.fault("kill -9 of another one during recovery", SIGKILL, {0});
  fault.while_recovers = {kNodes};  // the spare that takes its place, and has copies of what it had
  expect_recovers(fault, 2);
}

TEST_F(Recovery, InASave) {
  expect_recovers({.name = "kill -9 of a Sub-Controller in a save"}, 1, "DTORCH_TEST_CHECKPOINT_STOP=closed");
}

}  // namespace
}  // namespace dtorch::test
