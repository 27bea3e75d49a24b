// Signals that ask a job to end, and the one that asks what it is doing. Rank 0 passes them to the Main-Controller; the
// other ranks ignore them and wait to be told.
#pragma once
#include <signal.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/controller/main_controller.h"

namespace dtorch {

inline constexpr std::array<int, 4> kSignals = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2};

// From now on a SIGUSR1 that comes before there is a job to tell is kept for it, instead of ending the process. Call it
// first of all, on the ranks that would be told.
void keep_early_stop_signal();

// While it lives SIGTERM, SIGINT and SIGUSR1 call request_stop, and so does the time (`stop_after_s` > 0), once; a
// second SIGINT ends the process at once with code 130. A program that hasn't asked Client::stop_requested 4 s after
// SIGTERM or SIGINT won't end by itself: everything then fails, which its next read throws. When it is still busy with
// something else another 4 s later, the process ends with code 1 (I10). While a checkpoint is being written this clock
// stands still, but for `save_limit_s` at most (0: for ever): a save that hasn't ended by then doesn't get on, and the
// same is done even when the program has asked. SIGUSR2 prints to stderr what every device is doing, a quarter of a
// second later at most, and when all nodes have answered. One at a time in a process.
class JobSignals {
 public:
  explicit JobSignals(MainController& controller, double stop_after_s = 0, double save_limit_s = 0);
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;
  JobSignals& operator=(const JobSignals&) = delete;
  // What follows is bounded by itself: nothing is ended by force any more.
  void program_ended();

 private:
  void watch();
  MainController& controller_;
  const double stop_after_s_, save_limit_s_;
  std::array<struct sigaction, kSignals.size()> before_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;           // under mutex_
  bool program_ended_ = false;  // under mutex_
  std::thread thread_;
};

class IgnoreJobSignals {
 public:
  IgnoreJobSignals();
  ~IgnoreJobSignals();
  IgnoreJobSignals(const IgnoreJobSignals&) = delete;
  IgnoreJobSignals& operator=(const IgnoreJobSignals&) = delete;

 private:
  std::array<struct sigaction, kSignals.size()> before_;
};

}  // namespace dtorch
