// A process of this host that isn't mistaken for a later one with the same number.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>

namespace dtorch {

class Process {
 public:
  // The process that has this number now. What is found out about the number after this is true of this process, or
  // it has ended. Needs a file handle; where the kernel gives none, the time of its start tells it from later ones.
  explicit Process(pid_t id);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  pid_t id() const { return id_; }
  // It has ended, whether its parent has noticed or not.
  bool is_gone() const;
  // Ends it at once, without waiting. False when it was gone, or belongs to somebody else.
  bool end() const;
  // Blocks until it is gone or the time has come.
  void wait_gone(std::chrono::steady_clock::time_point deadline) const;

 private:
  pid_t id_;
  int handle_;         // -1: none
  std::string start_;  // in the kernel's clock ticks; "" when it had gone
};

// Of the process with this number; 0 when there is none.
pid_t parent_of(pid_t id);

}  // namespace dtorch
