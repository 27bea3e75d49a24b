#include "runtime/launch/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

extern char** environ;

namespace dtorch {

namespace {

constexpr int kUnknownCode = -1;

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// All that a new process needs, made before there is one.
struct Start {
  std::vector<char*> arguments, variables;
  const char* log_path;  // null: outputs stay as they are
  pid_t parent;
  int failures;  // takes the errno of what went wrong; closed by exec
};

void need(bool ok, const Start& start) {
  if (ok) return;
  const int error = errno;
  static_cast<void>(!::write(start.failures, &error, sizeof error));  // nobody is left to be told otherwise
  ::_exit(127);                                                       // lint: allow
}

// The new process's part. Only what a signal handler may do as well: the other threads' locks are held for ever.
void become(const Start& start) {
  need(::setpgid(0, 0) == 0, start);
  need(::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0, start);
  if (::getppid() != start.parent) ::_exit(127);  // lint: allow
  struct sigaction plain;
  std::memset(&plain, 0, sizeof plain);
  plain.sa_handler = SIG_DFL;
  // Some can't be set, and needn't be.
  for (int number = 1; number < NSIG; ++number) static_cast<void>(::sigaction(number, &plain, nullptr));
  sigset_t none;
  sigemptyset(&none);
  need(::sigprocmask(SIG_SETMASK, &none, nullptr) == 0, start);
  const int nothing = ::open("/dev/null", O_RDONLY);
  need(nothing >= 0 && ::dup2(nothing, STDIN_FILENO) >= 0, start);
  if (start.log_path != nullptr) {
    const int log = ::open(start.log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    need(log >= 0 && ::dup2(log, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0, start);
  }
  if (nothing != STDIN_FILENO) ::close(nothing);
  ::execvpe(start.arguments[0], start.arguments.data(), start.variables.data());
  need(false, start);
}

}  // namespace

Child::Child(const std::vector<std::string>& command, const ChildEnvironment& environment,
             const std::string& log_path) {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) variables.emplace_back(*at);
  for (const auto& [name, value] : environment) {
    std::erase_if(variables, [&](const std::string& line) { return line.starts_with(name + "="); });
    variables.push_back(name + "=" + value);
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw RuntimeFault(std::string("pipe: ") + std::strerror(errno));
  Start start{{}, {}, log_path.empty() ? nullptr : log_path.c_str(), ::getpid(), ends[1]};
  for (const std::string& word : command) start.arguments.push_back(const_cast<char*>(word.c_str()));
  for (std::string& line : variables) start.variables.push_back(line.data());
  start.arguments.push_back(nullptr);
  start.variables.push_back(nullptr);
  // Not posix_spawn, which can't ask for the signal at the parent's end.
  pid_ = ::fork();
  if (pid_ == 0) become(start);
  int error = pid_ < 0 ? errno : 0;
  ::close(ends[1]);
  // Ends when the program runs.
  while (pid_ > 0 && ::read(ends[0], &error, sizeof error) < 0 && errno == EINTR) {
  }
  ::close(ends[0]);
  if (error == 0) return;
  if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  throw RuntimeFault("cannot start '" + command[0] + "': " + std::strerror(error));
}

Child::~Child() {
  if (!ended()) end_group();
}

std::optional<int> Child::ended() {
  if (code_) return code_;
  int status = 0;
  const pid_t got = ::waitpid(pid_, &status, WNOHANG);
  if (got == pid_) code_ = code_of(status);
  if (got < 0 && errno == ECHILD) code_ = kUnknownCode;
  return code_;
}

void Child::signal(int number) const {
  if (!code_) ::kill(pid_, number);
}

int Child::end_group() {
  if (code_) return *code_;
  ::kill(-pid_, SIGKILL);
  int status = 0;
  pid_t got = 0;
  while ((got = ::waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  code_ = got == pid_ ? code_of(status) : kUnknownCode;
  return *code_;
}

}  // namespace dtorch
