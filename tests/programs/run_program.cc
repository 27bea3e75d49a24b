#include "tests/programs/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

extern char** environ;

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void need(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    need(::pipe2(ends, O_CLOEXEC) == 0, "pipe");
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    ::close(read_end);
    if (write_end >= 0) ::close(write_end);
  }
};

pid_t spawn(const std::vector<std::string>& command, const Pipe& out, const Pipe& err) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.write_end, 1);
  posix_spawn_file_actions_adddup2(&files, err.write_end, 2);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const int code = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  errno = code;
  need(code == 0, "spawn");
  return pid;
}

// Appends what can be read; false at the end of the stream.
bool drain(int descriptor, std::string& text) {
  char buffer[65536];
  const ssize_t got = ::read(descriptor, buffer, sizeof buffer);
  if (got > 0) text.append(buffer, static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

std::string bin_folder() {
  const char* folder = std::getenv("DTORCH_BIN_DIR");
  return folder ? folder : "build/bin";
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& command, const ProgramOptions& options) {
  std::vector<std::string> full;
  if (options.np > 0) {
    full = {"mpirun", "--oversubscribe", "--bind-to", "none"};
    full.insert(full.end(), options.mpirun.begin(), options.mpirun.end());
    full.insert(full.end(), {"-np", std::to_string(options.np)});
  }
  if (options.file_size_limit_kib > 0) {
    full = {"bash", "-c", "trap '' XFSZ; ulimit -f " + std::to_string(options.file_size_limit_kib) + "; exec \"$@\"",
            "limited"};
  }
  full.insert(full.end(), options.wrapper.begin(), options.wrapper.end());
  full.push_back(bin_folder() + "/" + command[0]);
  full.insert(full.end(), command.begin() + 1, command.end());

  Pipe out, err;
  const auto start = Clock::now();
  const pid_t pid = spawn(full, out, err);
  ::close(std::exchange(out.write_end, -1));
  ::close(std::exchange(err.write_end, -1));
  ProgramResult result;
  int status = 0;
  bool ended = false, out_open = true, err_open = true;
  auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  while (!ended || out_open || err_open) {
    pollfd files[2] = {{out_open ? out.read_end : -1, POLLIN, 0}, {err_open ? err.read_end : -1, POLLIN, 0}};
    need(::poll(files, 2, 10) >= 0 || errno == EINTR, "poll");
    if (files[0].revents) out_open = drain(out.read_end, result.output);
    if (files[1].revents) err_open = drain(err.read_end, result.errors);
    if (!ended && ::waitpid(pid, &status, WNOHANG) == pid) {
      ended = true;
      result.seconds = elapsed();
    }
    if (!ended && options.watch) options.watch(result.output, pid);
    if (elapsed() > options.timeout_s && !result.timed_out) {
      result.timed_out = true;
      ::kill(-pid, SIGKILL);
    }
    // Somebody else may hold the pipes open after the end.
    if (ended && elapsed() > result.seconds + 2) break;
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::vector<pid_t> descendants(pid_t parent, const std::string& word) {
  std::map<pid_t, pid_t> parent_of;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    const size_t end = text.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream rest(text.substr(end + 1));
    char state = 0;
    pid_t of = 0;
    rest >> state >> of;
    parent_of[std::stoi(name)] = of;
  }
  std::vector<pid_t> found;
  for (const auto& [pid, unused] : parent_of) {
    pid_t at = pid;
    while (at > 1 && at != parent && parent_of.count(at)) at = parent_of[at];
    if (at != parent || pid == parent) continue;
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    const std::string line((std::istreambuf_iterator<char>(file)), {});
    if (line.find(word) != std::string::npos && line.find("mpirun") == std::string::npos) found.push_back(pid);
  }
  return found;
}

bool process_exists(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  const size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() && text[end + 2] != 'Z';
}

std::string scratch_folder(const std::string& name) {
  std::string pattern = (fs::temp_directory_path() / ("dtorch_" + name + "_XXXXXX")).string();
  need(::mkdtemp(pattern.data()) != nullptr, "mkdtemp");
  return pattern;
}

std::string source_path(const std::string& relative) {
  const char* folder = std::getenv("DTORCH_SOURCE_DIR");
  return (folder ? std::string(folder) + "/" : std::string()) + relative;
}

}  // namespace dtorch::test
