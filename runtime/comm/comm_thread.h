// The one thread of a process that talks to the data plane (and, under MPI, to MPI at all: D7). Runs CommTasks as state
// machines, and lets ProgressSources (the MPI control channel) make progress. Sleeps when idle: spins about 20 us with
// a yield in every turn, then blocks when nothing needs polling, else backs off 5 -> 200 us, 1 ms after 10 ms, 10 ms
// after 1 s without activity.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runtime/base/intrusive.h"
#include "runtime/comm/transport.h"
#include "runtime/graph/inspection.h"

namespace dtorch {

// A transfer under way. Tasks are started in the order of submission and finish in any order.
class CommTask : public RefCounted {
 public:
  virtual ~CommTask() = default;
  // Does what can be done without blocking; true when finished (it isn't called again). Exceptions of a task are its
  // own business: one that escapes ends the comm thread and is reported through on_failure.
  virtual bool poll(Transport& transport) = 0;
  // Whom it waits for, for a report; none when it can't tell. Comm thread only.
  virtual std::optional<TransferStatus> status() const { return std::nullopt; }
  // Asked after poll() returned false: true when there is nothing to do for it until CommThread::wake(), which will
  // come or has come since. So hundreds that wait for their sources cost nothing. Comm thread only.
  virtual bool sleeps() const { return false; }

 protected:
  // The task sleeps and wakes as a part of `whole`, which is the one that is submitted and goes last; null: by itself.
  // Before either is submitted, and from the destructor of `whole`.
  void set_part_of(CommTask& task, CommTask* whole) { task.whole_ = whole; }

 private:
  friend class CommThread;
  static constexpr size_t kAwake = ~size_t{0};
  CommTask* whole_ = nullptr;
  uint64_t submission_ = 0;    // the comm thread's, as the next
  size_t asleep_at_ = kAwake;  // in CommThread::asleep_tasks_
};

class ProgressSource {
 public:
  virtual ~ProgressSource() = default;
  virtual bool progress() = 0;             // true when something happened. Comm thread only
  virtual bool needs_polling() const = 0;  // comm thread only
  // Something was begun that must end before the comm thread may. Comm thread only.
  virtual bool outstanding() const { return false; }
  // `wake` is called, from any thread, when progress() has something new to do. Null: as Transport::set_wakeup.
  virtual void set_wakeup(std::function<void()> wake) { static_cast<void>(wake); }
};

class CommThread {
 public:
  // Registers notify() as the wake-up of the transport and the sources; the sources outlive this object. transport may
  // be null (rank 0 of several): then no task may be submitted. `on_failure` runs on the thread, once, as the last
  // thing that it does.
  CommThread(std::unique_ptr<Transport> transport, std::vector<ProgressSource*> sources,
             std::function<void(std::exception_ptr)> on_failure);
  // Stops by force if it still runs. Tasks that haven't finished are destroyed after the transport, which may use their
  // memory.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  void submit(IntrusivePtr<CommTask> task);  // any thread; without effect after the end
  // What a task that sleeps waits for may have happened. Any thread; without effect on one that has ended.
  void wake(IntrusivePtr<CommTask> task);
  // Calls `look`, on the thread, with the tasks that are under way; never when the thread has ended. Any thread.
  using Look = std::function<void(std::span<const IntrusivePtr<CommTask>>)>;
  void inspect(Look look);
  // Drops all tasks that were submitted before, finished or not, and what the transport has under way for them; later
  // ones belong to `epoch`. Blocks until that is done, or the thread has ended. Not on this thread.
  void begin_epoch(uint32_t epoch);
  // Something that a task or a source waits for may have happened. Any thread; cheap when the thread is awake.
  void notify();
  // Ends the thread when no task is left and no source has anything outstanding, or at once when `force`. Returns when
  // it has ended. May be called again, also with force while another thread waits.
  void stop(bool force);
  // As stop(false), but by force after `grace`. True when the end was an orderly one.
  bool stop_within(std::chrono::nanoseconds grace);
  Transport* transport() { return transport_.get(); }

 private:
  void loop();
  void drop_tasks(uint32_t epoch);
  bool turn();
  bool progress_sources();
  bool poll_tasks();
  void wake_tasks();
  void put_to_sleep(IntrusivePtr<CommTask> task);
  void look_at_tasks(const std::vector<Look>& looks) const;
  bool may_end() const;
  void idle(int64_t idle_ns);
  void request_stop(bool force);
  void join();

  std::unique_ptr<Transport> transport_;
  std::vector<ProgressSource*> sources_;
  std::function<void(std::exception_ptr)> on_failure_;
  std::atomic<bool> notified_{false};
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable wakeup_;
  std::condition_variable ended_wakeup_;           // an epoch was begun, or the thread has ended
  std::vector<IntrusivePtr<CommTask>> submitted_;  // under mutex_
  std::vector<IntrusivePtr<CommTask>> woken_;      // under mutex_: may be awake, or have ended
  std::vector<Look> looks_;                        // under mutex_
  std::optional<uint32_t> new_epoch_;              // under mutex_: asked for and not begun
  bool stop_ = false, force_ = false;              // under mutex_
  bool ended_ = false;                             // under mutex_
  std::vector<IntrusivePtr<CommTask>> taken_;      // the thread's, as all that follows
  std::vector<IntrusivePtr<CommTask>> taken_woken_;
  std::vector<IntrusivePtr<CommTask>> running_;
  std::vector<IntrusivePtr<CommTask>> asleep_tasks_;  // in no order
  uint64_t num_submitted_ = 0;
  bool stopping_ = false, forced_ = false;
  int64_t progressed_ns_ = 0;  // when the sources last had their turn
  bool orderly_ = false;       // the thread's until it has ended
  std::mutex join_mutex_;      // of thread_
  std::thread thread_;
};

}  // namespace dtorch
