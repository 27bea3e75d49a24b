// Another rank of the job on this machine, watched by its file handle: that it has ended is known at once, without
// waiting for its silence. One thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace dtorch {

class PeerProcess {
 public:
  // It must be running now. Where the kernel gives no handle it is never seen to have gone.
  PeerProcess(int32_t address, pid_t id);
  ~PeerProcess();
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&& other) noexcept;

  int32_t address() const { return address_; }  // on the control channel
  bool is_gone() const;
  // Somebody has stopped it (SIGSTOP, a debugger).
  bool is_stopped() const;
  // Ends it at once, without waiting.
  void end() const;

 private:
  int32_t address_;
  pid_t id_;
  int handle_;  // -1: none
};

// What two processes that see each other by their numbers have in common, and others haven't: the machine's boot and
// the name space of processes. Never throws; "" where the machine doesn't tell.
std::string process_space();

}  // namespace dtorch
