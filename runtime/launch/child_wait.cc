#include "runtime/launch/child_wait.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "runtime/base/error.h"

namespace dtorch {

namespace {

sigset_t set_of(std::initializer_list<int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  return set;
}

sigset_t waited_for() {
  sigset_t set = set_of({SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGQUIT, SIGCHLD});
  // Linux keeps a blocked signal even when it is ignored, so an ignored one must not be among these.
  struct sigaction hangup;
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

void set_action(int number, void (*handler)(int)) {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  if (::sigaction(number, &action, nullptr) != 0)
    throw RuntimeFault(std::string("can't handle signals: ") + std::strerror(errno));
}

// 0 when none came.
int wait_for(const sigset_t& set, double limit_s) {
  const double whole = std::floor(limit_s);
  const timespec limit{static_cast<time_t>(whole), static_cast<long>((limit_s - whole) * 1e9)};
  return std::max(0, ::sigtimedwait(&set, nullptr, &limit));
}

}  // namespace

void block_supervisor_signals() {
  // Where SIGCHLD is ignored, children vanish with their exit codes.
  set_action(SIGCHLD, SIG_DFL);
  set_action(SIGPIPE, SIG_IGN);
  const sigset_t set = waited_for();
  const int error = ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (error != 0) throw RuntimeFault(std::string("can't block signals: ") + std::strerror(error));
  if (::signal(SIGPIPE, SIG_IGN) == SIG_ERR) throw RuntimeFault("can't ignore SIGPIPE");
}

void wait_for_child(double limit_s) { wait_for(set_of({SIGCHLD}), limit_s); }

int wait_for_child_or_signal(double limit_s) {
  const int number = wait_for(waited_for(), limit_s);
  return number == SIGCHLD ? 0 : number;
}

}  // namespace dtorch
