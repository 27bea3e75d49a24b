#include "runtime/launch/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/launch/child.h"
#include "runtime/launch/child_wait.h"
#include "runtime/launch/host_probe.h"
#include "runtime/launch/leftovers.h"
#include "runtime/launch/result_file.h"

namespace dtorch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLookEveryS = 0.2;
// For the launcher to end after the job has said how it ended.
constexpr double kGraceS = 1, kGraceOfOrderlyEndS = 10;
constexpr double kFirstProbeS = 60;  // programs and containers aren't cached yet
constexpr double kProbeS = 20;
// Of a launcher that goes on without rank 0: then it never ends, as when Slurm has ended its daemons.
constexpr double kLookForFirstRankS = 2, kWithoutFirstRankS = 10;
constexpr double kAskAgainS = 5;  // a launcher that isn't ready yet drops a signal
constexpr double kLeaveS = 1;     // for the launcher's helpers to end after it
constexpr double kEndS = 5;       // for killed processes to be gone

void say(const std::string& what) { std::cerr << "supervise: " + what + "\n" << std::flush; }

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::optional<JobResult> read_result(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    return JobResult{json.at("code"), json.at("status"), json.at("reason")};
  } catch (const nlohmann::json::exception& error) {
    return JobResult{kFailed, "failed", std::string("its result file doesn't read: ") + error.what()};
  }
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisedJob& job) : job_(job), live_(job.hosts), others_(descendants_of_this_process()) {}
  SupervisedEnd run();

 private:
  JobResult attempt(const std::vector<std::string>& hosts);
  JobResult watch(Child& launcher);
  bool has_lost_first_rank();
  void take(int signal, const Child& launcher);
  void ask_to_stop(const std::string& why, const Child& launcher);
  void clean();
  // Why the job can't begin; "" when it can.
  std::string look_at_hosts();
  bool drop_dead_hosts();
  // A signal came, or the time is over, while nothing ran.
  bool stop_is_wanted();
  size_t num_wanted_hosts() const {
    return static_cast<size_t>(std::max<int64_t>(1, static_cast<int64_t>(job_.hosts.size()) - job_.spares));
  }
  std::vector<std::string> active_hosts() const;
  // Ranks of an attempt on these hosts that the job keeps for when others are lost.
  int64_t num_spare_ranks(const std::vector<std::string>& hosts) const;
  SupervisedEnd end(const JobResult& result) const {
    return {result.code, result.status, result.reason, num_attempts_, job_.progress()};
  }

  const SupervisedJob& job_;
  std::vector<std::string> live_;
  const std::vector<Process> others_;  // children from before the job
  const Clock::time_point start_ = Clock::now();
  int64_t num_attempts_ = 0;
  // Of the attempt: rank 0, once it was seen on this host.
  std::vector<Process> first_rank_;
  Clock::time_point first_rank_looked_, first_rank_seen_;
  bool stopping_ = false, interrupted_ = false, kill_ = false;
  Clock::time_point asked_;  // the last time, when stopping_
};

void Supervisor::ask_to_stop(const std::string& why, const Child& launcher) {
  if (!stopping_) say(why + ": asking the job to save and end");
  stopping_ = true;
  asked_ = Clock::now();
  launcher.signal(SIGUSR1);
}

void Supervisor::take(int signal, const Child& launcher) {
  if (signal == 0) return;
  if (signal == SIGUSR2) return launcher.signal(SIGUSR2);
  if (signal == SIGINT && std::exchange(interrupted_, true)) kill_ = true;
  // mpirun would answer any other signal by ending its ranks within a second; SIGUSR1 it passes on.
  ask_to_stop(fmt::format("SIG{}", ::sigabbrev_np(signal)), launcher);
}

// It was seen on this host, and hasn't been for some time.
bool Supervisor::has_lost_first_rank() {
  if (seconds_since(first_rank_looked_) < kLookForFirstRankS) return false;
  first_rank_looked_ = Clock::now();
  const bool was_seen = !first_rank_.empty();
  const auto is_there = [](const Process& process) { return !process.is_gone(); };
  if (std::ranges::none_of(first_rank_, is_there)) {
    std::vector<Process> now = first_rank_processes(job_.id);
    std::erase_if(now, [](const Process& process) { return process.is_gone(); });
    if (now.empty()) return was_seen && seconds_since(first_rank_seen_) > kWithoutFirstRankS;
    first_rank_ = std::move(now);
  }
  first_rank_seen_ = first_rank_looked_;
  return false;
}

// Until the launcher has ended, or must be ended because the job has.
JobResult Supervisor::watch(Child& launcher) {
  std::optional<Clock::time_point> said;
  std::optional<JobResult> result;
  first_rank_.clear();
  bool is_deserted = false;
  while (!launcher.ended()) {
    take(wait_for_child_or_signal(kLookEveryS), launcher);
    if (kill_) break;
    if (!stopping_ && job_.stop_after_s > 0 && seconds_since(start_) > job_.stop_after_s)
      ask_to_stop("the time is over", launcher);
    if (stopping_ && !result && seconds_since(asked_) > kAskAgainS) {
      asked_ = Clock::now();
      launcher.signal(SIGUSR1);
    }
    if (!said && (result = read_result(job_.result))) said = Clock::now();
    if (!result && (is_deserted = has_lost_first_rank())) break;
    const bool orderly = result && (result->code == kDone || result->code == kPreempted);
    if (said && seconds_since(*said) > (orderly ? kGraceOfOrderlyEndS : kGraceS)) break;
  }
  const int code = launcher.end_group();
  if (!result) result = read_result(job_.result);
  if (result) return *result;
  if (kill_) return {kPeerLost, "killed", "it was interrupted twice"};
  if (is_deserted)
    return {kPeerLost, "peer lost", fmt::format("rank 0 ended without a word; {} didn't", job_.launcher)};
  // Some commands write none, and rank 0 may write where this process doesn't look: another host's own folder. An
  // mpirun that lets a job go on without a rank returns 0 whatever becomes of the others, also of rank 0.
  if (!job_.recover && (code == kDone || code == kPreempted)) return result_of_code(code);
  return {kPeerLost, "peer lost", fmt::format("it ended without a word; {} with code {}", job_.launcher, code)};
}

JobResult Supervisor::attempt(const std::vector<std::string>& hosts) {
  ++num_attempts_;
  clear_result(job_.result);
  ChildEnvironment environment{{kSupervisedVariable, fmt::format("{} {}", job_.id, num_attempts_)},
                               {"DTORCH_RESULT", job_.result},
                               {"DTORCH_SPARES", std::to_string(num_spare_ranks(hosts))}};
  std::string host_file;
  if (job_.launcher == "srun") {
    host_file = job_.result + ".hosts";
    std::ofstream file(host_file);
    file << hosts.front() << '\n';
    for (const std::string& host : hosts) file << host << '\n';
    if (!file.flush()) throw RuntimeFault("cannot write '" + host_file + "'");
    environment.emplace_back("SLURM_HOSTFILE", host_file);
  }
  Child launcher(launch_command(job_, hosts, job_.command), environment);
  const JobResult result = watch(launcher);
  clean();
  if (!host_file.empty()) ::unlink(host_file.c_str());
  ::unlink(job_.result.c_str());
  return result;
}

// What is left on this machine; the probes do it on the others.
void Supervisor::clean() {
  std::vector<Process> left = descendants_of_this_process(others_);
  for (Process& process : supervised_processes(job_.id)) left.push_back(std::move(process));
  const int ended = end_processes(left, kLeaveS, kEndS);
  if (ended > 0) say(fmt::format("ended {} processes that the job had left", ended));
  // Orphans were adopted, see run().
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  remove_unused_segments();
}

std::string Supervisor::look_at_hosts() {
  if (job_.hosts.empty()) return "";
  for (const auto& [host, problem] : unusable_hosts(job_, job_.hosts, kFirstProbeS)) {
    if (!problem.is_silent || live_.size() == num_wanted_hosts()) return problem.reason;
    say(problem.reason + "; beginning without it");
    std::erase(live_, host);
  }
  return "";
}

// False when no host is left.
bool Supervisor::drop_dead_hosts() {
  if (job_.hosts.empty()) return true;
  for (const auto& [host, problem] : unusable_hosts(job_, job_.hosts, kProbeS)) {
    say(problem.reason + "; going on without it");
    std::erase(live_, host);
  }
  clean();
  return !live_.empty();
}

bool Supervisor::stop_is_wanted() {
  while (const int signal = wait_for_child_or_signal(0)) stopping_ |= signal != SIGUSR2;
  return stopping_ || (job_.stop_after_s > 0 && seconds_since(start_) > job_.stop_after_s);
}

int64_t Supervisor::num_spare_ranks(const std::vector<std::string>& hosts) const {
  if (!job_.recover) return 0;
  return hosts.empty() ? job_.spares : static_cast<int64_t>(hosts.size() - std::min(hosts.size(), num_wanted_hosts()));
}

std::vector<std::string> Supervisor::active_hosts() const {
  if (job_.recover) return live_;
  return {live_.begin(), live_.begin() + static_cast<ptrdiff_t>(std::min(num_wanted_hosts(), live_.size()))};
}

SupervisedEnd Supervisor::run() {
  // What a killed mpirun leaves becomes a child of this process, to be found and ended.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw RuntimeFault(std::string("prctl: ") + std::strerror(errno));
  if (const std::string problem = look_at_hosts(); !problem.empty()) return end({kFailed, "refused", problem});
  int64_t tries = 0, best = job_.progress();
  while (true) {
    if (stop_is_wanted()) return end({kPreempted, "preempted", "it was asked to stop before it began"});
    const std::vector<std::string> hosts = active_hosts();
    const JobResult result = attempt(hosts);
    if (result.code == kDone || result.code == kPreempted || result.status == "refused" || kill_) return end(result);
    const int64_t now = job_.progress();
    say(fmt::format("attempt {} ended: {}{}{}", num_attempts_, result.status, result.reason.empty() ? "" : ": ",
                    result.reason));
    if (stopping_) {
      // What fails by itself would fail again, and a queue would start it again and again.
      if (result.status != "peer lost" && now <= best) return end(result);
      // It couldn't save any more; what it saved before still counts.
      return end({kPreempted, "preempted", "it was asked to stop and ended without saving: " + result.reason});
    }
    tries = now > best ? 0 : tries + 1;
    best = std::max(best, now);
    if (tries > job_.retries) {
      say(fmt::format("given up: {} attempts in a row brought no new checkpoint", tries));
      return end(result);
    }
    if (!drop_dead_hosts()) return end({kPeerLost, "peer lost", "no host answers"});
    say(now < 0 ? "starting again from the beginning: nothing is saved"
                : fmt::format("starting again from step {}{}", now,
                              live_.empty() ? "" : fmt::format(" on {}", fmt::join(active_hosts(), ", "))));
  }
}

}  // namespace

SupervisedEnd supervise(const SupervisedJob& job) { return Supervisor(job).run(); }

}  // namespace dtorch
