#include "runtime/comm/peer_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <utility>

namespace dtorch {

PeerProcess::PeerProcess(int32_t address, pid_t id)
    : address_(address), id_(id), handle_(static_cast<int>(::syscall(SYS_pidfd_open, id, 0))) {}

PeerProcess::~PeerProcess() {
  if (handle_ >= 0) ::close(handle_);
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : address_(other.address_), id_(other.id_), handle_(std::exchange(other.handle_, -1)) {}

PeerProcess& PeerProcess::operator=(PeerProcess&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(id_, other.id_);
  std::swap(handle_, other.handle_);
  return *this;
}

bool PeerProcess::is_gone() const {
  // A handle becomes readable when its process has ended, whether its parent has noticed or not.
  pollfd look{.fd = handle_, .events = POLLIN, .revents = 0};
  return handle_ >= 0 && ::poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0;
}

bool PeerProcess::is_stopped() const {
  std::ifstream file("/proc/" + std::to_string(id_) + "/stat", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t state = text.rfind(')') + 2;  // the name before may hold anything
  return state < text.size() && (text[state] == 'T' || text[state] == 't');
}

void PeerProcess::end() const {
  // It may have ended by itself, which is as good.
  if (handle_ >= 0) static_cast<void>(::syscall(SYS_pidfd_send_signal, handle_, SIGKILL, nullptr, 0));
}

std::string process_space() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (!std::getline(file, boot)) return "";
  char space[64] = "";
  const ssize_t length = ::readlink("/proc/self/ns/pid", space, sizeof space);
  return length <= 0 ? "" : boot + " " + std::string(space, static_cast<size_t>(length));
}

}  // namespace dtorch
