// Watchdog: a thread that notices when nothing finishes any more, says which device is in which operator and who waits
// for it, and after the deadline ends the job with that report. It asks the nodes only while one of them owes work and
// has acknowledged nothing for a while, so that a job that runs isn't disturbed.
//
// A device holds up the job when it is in one kernel for as long; a node, when it doesn't answer; a transfer, when
// devices wait and none is in a kernel. A device that runs many short kernels makes progress, whether or not it has
// acknowledged anything.
#pragma once
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/controller/inspection.h"
#include "runtime/controller/ledger.h"

namespace dtorch {

// A job that was ended because nothing finished within the deadline.
class DeadlinePassed : public RuntimeFault {
 public:
  using RuntimeFault::RuntimeFault;
};

class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    Clock::duration report, deadline;  // zero: never
  };
  // Both outlive it.
  Watchdog(Ledger& ledger, Inspection& inspection, Limits limits);
  // Waits for the question that is under way, if any: a second at most.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct Seen {
    DeviceStatus status;
    Clock::time_point since;  // unchanged
  };
  void loop();
  void look();
  // For how long the job has been held up, as far as the answers tell.
  Clock::duration held_up(const std::vector<Ledger::Debt>& debts, const Inspection::Answers& answers);
  void report(Clock::duration quiet, const Inspection::Answers& answers);

  Ledger& ledger_;
  Inspection& inspection_;
  const Limits limits_;
  const Clock::duration turn_, answer_wait_;
  std::map<int64_t, Seen> seen_;    // by device; the thread's, as the next
  Clock::duration next_report_{0};  // of this time that the job is held up
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace dtorch
