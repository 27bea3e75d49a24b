// Signals that ask a job to end. Rank 0 passes them to the Main-Controller; the other ranks ignore them and wait to be
// told.
#pragma once
#include <signal.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/controller/main_controller.h"

namespace dtorch {

inline constexpr std::array<int, 3> kStopSignals = {SIGTERM, SIGINT, SIGUSR1};

// While it lives SIGTERM, SIGINT and SIGUSR1 call request_stop; a second SIGINT ends the process at once with code 130.
// A program that hasn't asked Client::stop_requested 4 s after SIGTERM or SIGINT won't end by itself: everything then
// fails, which its next read throws. When it is still busy with something else another 4 s later, the process ends with
// code 1 (I10). One at a time in a process.
class StopSignals {
 public:
  explicit StopSignals(MainController& controller);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // What follows is bounded by itself: nothing is ended by force any more.
  void program_ended();

 private:
  void watch();
  MainController& controller_;
  std::array<struct sigaction, kStopSignals.size()> before_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;           // under mutex_
  bool program_ended_ = false;  // under mutex_
  std::thread thread_;
};

class IgnoreStopSignals {
 public:
  IgnoreStopSignals();
  ~IgnoreStopSignals();
  IgnoreStopSignals(const IgnoreStopSignals&) = delete;
  IgnoreStopSignals& operator=(const IgnoreStopSignals&) = delete;

 private:
  std::array<struct sigaction, kStopSignals.size()> before_;
};

}  // namespace dtorch
