#include "runtime/launch/host_probe.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/launch/child.h"
#include "runtime/launch/child_wait.h"

namespace dtorch {

namespace {

namespace fs = std::filesystem;

// Why a probe failed on a host, with the line of its output that tells most: what the loader or we said, else the
// first.
HostProblem problem_of(const std::string& host, const std::string& path) {
  const std::string unreachable = "host " + host + " can't be reached: ";
  const std::string broken = "the program doesn't start on host " + host + " (modules, container, files there?): ";
  std::ifstream file(path);
  std::string first;
  for (std::string line; std::getline(file, line);) {
    for (const char* sign : {"ORTE daemon", "ORTE was unable", "srun: error: ", "ssh: "}) {
      if (line.find(sign) != std::string::npos) return {true, unreachable + line};
    }
    for (const char* sign : {"error while loading shared libraries", "error: ", "not found", "No such file"}) {
      if (line.find(sign) != std::string::npos) return {false, broken + line};
    }
    if (first.empty() && line.find_first_not_of("- ") != std::string::npos) first = line;
  }
  return {false, broken + (first.empty() ? "it says nothing" : first)};
}

std::vector<std::string> probe_on(const SupervisedJob& job, const std::string& host) {
  std::vector<std::string> command =
      job.launcher == "srun"
          ? std::vector<std::string>{"srun",      "--mpi=none", "--overlap",         "--cpu-bind=none",
                                     "--nodes=1", "--ntasks=1", "--nodelist=" + host}
          : std::vector<std::string>{"mpirun", "--oversubscribe", "--bind-to", "none", "-H", host + ":1", "-np", "1"};
  if (job.launcher != "srun") command.insert(command.end(), job.launcher_options.begin(), job.launcher_options.end());
  command.insert(command.end(), job.wrapper.begin(), job.wrapper.end());
  command.insert(command.end(), job.probe_command.begin(), job.probe_command.end());
  return command;
}

// A new folder that nobody else writes to, while it lives.
class OwnFolder {
 public:
  OwnFolder() {
    std::string pattern = (fs::temp_directory_path() / "dtorch_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw RuntimeFault("cannot make a folder '" + pattern + "': " + std::strerror(errno));
    path_ = pattern;
  }
  ~OwnFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct Probe {
  std::string host, log;
  std::unique_ptr<Child> child;
};

}  // namespace

std::map<std::string, HostProblem> unusable_hosts(const SupervisedJob& job, const std::vector<std::string>& hosts,
                                                  double limit_s) {
  const OwnFolder folder;
  std::vector<Probe> probes;
  for (const std::string& host : hosts) {
    const std::string log = (folder.path() / std::to_string(probes.size())).string();
    probes.push_back({host, log, std::make_unique<Child>(probe_on(job, host), ChildEnvironment{}, log)});
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  const auto all_ended = [&] {
    bool all = true;
    for (Probe& probe : probes) all &= probe.child->ended().has_value();
    return all;
  };
  while (!all_ended() && std::chrono::steady_clock::now() < deadline) wait_for_child(0.2);
  std::map<std::string, HostProblem> problems;
  for (Probe& probe : probes) {
    const std::optional<int> code = probe.child->ended();
    if (!code) {
      probe.child->end_group();
      problems[probe.host] = {true, "host " + probe.host + " doesn't answer"};
    } else if (*code != 0) {
      problems[probe.host] = problem_of(probe.host, probe.log);
    }
  }
  return problems;
}

std::vector<std::string> launch_command(const SupervisedJob& job, const std::vector<std::string>& hosts,
                                        const std::vector<std::string>& program) {
  const int64_t here = job.ranks + (job.recover ? job.spares : 0);
  const std::string ranks = std::to_string(hosts.empty() ? here : static_cast<int64_t>(hosts.size()) + 1);
  std::vector<std::string> command;
  if (job.launcher == "srun") {
    command = {"srun",
               "--mpi=pmix",
               "--overlap",
               "--distribution=arbitrary",
               "--overcommit",
               "--cpu-bind=none",
               "--nodes=" + std::to_string(hosts.size()),
               "--ntasks=" + ranks};
    if (job.recover) {
      command.insert(command.end(), {"--no-kill", "--kill-on-bad-exit=0"});
    } else {
      command.push_back(
          "--wait=60");  // seconds; else the others wait for ever for a rank that has ended before its time
    }
  } else {
    // Without --bind-to none Open MPI ties a rank with all its threads to one core where there are two ranks.
    command = {"mpirun", "--oversubscribe", "--bind-to", "none"};
    if (job.recover) command.push_back("--enable-recovery");
    if (!hosts.empty()) {
      std::string list;
      for (const std::string& host : hosts) list += list.empty() ? host + ":2" : "," + host + ":1";
      command.insert(command.end(), {"-H", list});
    }
    command.insert(command.end(),
                   {"-np", ranks, "-x", "DTORCH_SUPERVISED", "-x", "DTORCH_RESULT", "-x", "DTORCH_SPARES"});
  }
  for (const auto* words : {&job.launcher_options, &job.wrapper, &program})
    command.insert(command.end(), words->begin(), words->end());
  return command;
}

std::vector<std::string> slurm_hosts() {
  const char* list = std::getenv("SLURM_JOB_NODELIST");
  if (list == nullptr || *list == '\0') return {};
  const OwnFolder folder;
  const std::string log = (folder.path() / "hosts").string();
  Child child({"scontrol", "show", "hostnames", list}, {}, log);
  std::optional<int> code;
  while (!(code = child.ended())) wait_for_child(1);
  std::vector<std::string> hosts;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) hosts.push_back(line);
  if (*code != 0 || hosts.empty()) throw RuntimeFault(std::string("scontrol doesn't name the nodes of '") + list + "'");
  return hosts;
}

}  // namespace dtorch
