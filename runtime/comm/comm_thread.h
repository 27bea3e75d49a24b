// The one thread of a process that talks to the data plane (and, under MPI, to MPI at all: D7). Runs CommTasks as state machines,
// and lets ProgressSources (the MPI control channel) make progress. Sleeps when idle: blocks when nothing needs polling, else spins
// about 20 us with a yield in every turn, then backs off 5 -> 200 us, 1 ms after 10 ms, 10 ms after 1 s without activity.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/intrusive.h"
#include "runtime/comm/transport.h"

namespace dtorch {

// A transfer under way. Tasks are started in the order of submission and finish in any order.
class CommTask : public RefCounted {
 public:
  virtual ~CommTask() = default;
  // Does what can be done without blocking; true when finished (it isn't called again). Exceptions of a task are its own business:
  // one that escapes ends the comm thread and is reported through on_failure.
  virtual bool poll(Transport& transport) = 0;
};

class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  virtual bool progress() = 0;          // true when something happened. Comm thread only
  virtual bool needs_polling() const = 0;
};

class CommThread {
 public:
  // `on_start` and `on_end` run on the thread itself. transport may be null (rank 0 of several).
  CommThread(std::unique_ptr<Transport> transport, std::vector<ProgressSource*> sources,
             std::function<void(std::exception_ptr)> on_failure);
  ~CommThread();  // stops
  void submit(IntrusivePtr<CommTask> task);  // any thread
  // Something that a task or a source waits for may have happened. Any thread; cheap when the thread is awake.
  void notify();
  // Ends the thread when no task is left and no source has anything outstanding, or at once when `force`.
  void stop(bool force);
  Transport* transport() { return transport_.get(); }

 private:
  void loop();
  bool turn();
  void idle(int64_t idle_ns);
  std::unique_ptr<Transport> transport_;
  std::vector<ProgressSource*> sources_;
  std::function<void(std::exception_ptr)> on_failure_;
  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::deque<IntrusivePtr<CommTask>> submitted_;  // under mutex_
  std::atomic<bool> notified_{false};
  std::atomic<bool> asleep_{false};
  bool stop_ = false, force_ = false;             // under mutex_
  std::vector<IntrusivePtr<CommTask>> running_;   // the thread's
  std::thread thread_;
};

}  // namespace dtorch
