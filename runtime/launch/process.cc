#include "runtime/launch/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

namespace dtorch {

namespace {

// Of /proc/ID/stat, from the state on; empty when there is no such process.
std::vector<std::string> fields_of(pid_t id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // The name before may hold anything.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(text.substr(end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

constexpr size_t kState = 0, kParent = 1, kStart = 19;

std::string start_of(const std::vector<std::string>& fields) { return fields.size() > kStart ? fields[kStart] : ""; }

}  // namespace

Process::Process(pid_t id)
    : id_(id), handle_(static_cast<int>(::syscall(SYS_pidfd_open, id, 0))), start_(start_of(fields_of(id))) {}

Process::~Process() {
  if (handle_ >= 0) ::close(handle_);
}

Process::Process(Process&& other) noexcept
    : id_(other.id_), handle_(std::exchange(other.handle_, -1)), start_(std::move(other.start_)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(handle_, other.handle_);
  std::swap(start_, other.start_);
  return *this;
}

bool Process::is_gone() const {
  const std::vector<std::string> now = fields_of(id_);
  return start_.empty() || start_of(now) != start_ || now[kState] == "Z" || now[kState] == "X";
}

bool Process::end() const {
  if (is_gone()) return false;
  if (handle_ >= 0) return ::syscall(SYS_pidfd_send_signal, handle_, SIGKILL, nullptr, 0) == 0;
  return ::kill(id_, SIGKILL) == 0;
}

void Process::wait_gone(std::chrono::steady_clock::time_point deadline) const {
  constexpr double kLookEveryMs = 10;  // without a handle only looking tells
  while (!is_gone()) {
    const std::chrono::duration<double, std::milli> left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) return;
    pollfd entry{handle_, POLLIN, 0};
    const double limit_ms = handle_ >= 0 ? left.count() + 1 : std::min(left.count() + 1, kLookEveryMs);
    static_cast<void>(::poll(&entry, handle_ >= 0 ? 1 : 0, static_cast<int>(limit_ms)));
  }
}

pid_t parent_of(pid_t id) {
  const std::vector<std::string> fields = fields_of(id);
  return fields.size() > kParent ? std::stoi(fields[kParent]) : 0;
}

}  // namespace dtorch
