#include "runtime/launch/leftovers.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace dtorch {

namespace {

namespace fs = std::filesystem;

constexpr int kSecondLookMs = 300;

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

bool is_mine(const fs::path& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && status.st_uid == ::getuid();
}

// All processes that this one sees. They come and go meanwhile; what can't be read is gone.
std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

void wait_gone(const std::vector<Process>& processes, double limit_s) {
  const auto deadline =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(limit_s));
  for (const Process& process : processes) process.wait_gone(deadline);
}

void drop_mapped(std::set<std::string>& paths) {
  for (const pid_t process : all_processes()) {
    if (paths.empty()) return;
    const std::string maps = read_all("/proc/" + std::to_string(process) + "/maps");
    std::erase_if(paths, [&](const std::string& path) { return maps.find(path + "\n") != std::string::npos; });
  }
}

bool has_mark(pid_t process, const std::string& wanted) {
  const std::string folder = "/proc/" + std::to_string(process);
  if (!is_mine(folder)) return false;
  std::istringstream variables(read_all(folder + "/environ"));
  for (std::string line; std::getline(variables, line, '\0');) {
    if (line.starts_with(wanted)) return true;
  }
  return false;
}

// Numbers of this process's descendants, without `others` and what these have started.
std::set<pid_t> descendant_ids(const std::vector<Process>& others) {
  std::map<pid_t, pid_t> parents;
  for (const pid_t process : all_processes()) parents[process] = parent_of(process);
  for (const Process& other : others) {
    if (!other.is_gone()) parents.erase(other.id());
  }
  std::set<pid_t> found;
  for (const auto& [process, unused] : parents) {
    pid_t at = process;
    std::set<pid_t> seen;
    while (at > 1 && at != ::getpid() && parents.count(at) && seen.insert(at).second) at = parents[at];
    if (at == ::getpid() && process != ::getpid()) found.insert(process);
  }
  return found;
}

}  // namespace

std::vector<Process> supervised_processes(const std::string& id) {
  const std::string wanted = std::string(kSupervisedVariable) + "=" + id + " ";
  std::vector<Process> found;
  for (const pid_t number : all_processes()) {
    if (!has_mark(number, wanted)) continue;
    Process process(number);
    // The number may have gone to another process before it was held.
    if (has_mark(number, wanted)) found.push_back(std::move(process));
  }
  return found;
}

std::vector<Process> first_rank_processes(const std::string& id) {
  std::vector<Process> found = supervised_processes(id);
  std::erase_if(found, [](const Process& process) {
    return !has_mark(process.id(), "OMPI_COMM_WORLD_RANK=0") && !has_mark(process.id(), "PMIX_RANK=0");
  });
  return found;
}

std::vector<Process> descendants_of_this_process(const std::vector<Process>& others) {
  std::vector<Process> found;
  for (const pid_t number : descendant_ids(others)) found.emplace_back(number);
  const std::set<pid_t> still = descendant_ids(others);
  std::erase_if(found, [&](const Process& process) { return !still.contains(process.id()); });
  return found;
}

int end_processes(const std::vector<Process>& processes, double grace_s, double limit_s) {
  wait_gone(processes, grace_s);
  std::set<pid_t> told;
  int ended = 0;
  for (const Process& process : processes) ended += told.insert(process.id()).second && process.end() ? 1 : 0;
  wait_gone(processes, limit_s);
  return ended;
}

int remove_unused_segments(const std::string& folder) {
  std::set<std::string> candidates;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool is_segment = entry.path().filename().string().starts_with("vader_segment.");
    if (is_segment && is_mine(entry.path())) candidates.insert(entry.path());
  }
  // Another job may have made one and not mapped it yet: what counts is that it isn't mapped a while later either.
  drop_mapped(candidates);
  if (candidates.empty()) return 0;
  static_cast<void>(::poll(nullptr, 0, kSecondLookMs));
  drop_mapped(candidates);
  int removed = 0;
  for (const std::string& path : candidates) removed += ::unlink(path.c_str()) == 0 ? 1 : 0;
  return removed;
}

}  // namespace dtorch
