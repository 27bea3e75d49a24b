// The fake devices' way forward: one thread that runs what all streams of the process were given, each stream in its
// own order, the streams among each other in a seeded random one, some time after it was given. So whatever isn't
// ordered by an event is run in an order that a GPU might have, too, and a program that lacks an event shows it.
// Errands of the host run on a second thread. Thread-safe.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/accelerator/accelerator.h"

namespace dtorch::fake {

struct Setup {
  int32_t accelerators = 64;
  bool has_communicators = true;  // all nodes are in this process
  uint64_t seed = 1;
  std::chrono::microseconds most_delay{200};  // from a call to its work
  // Of the thread that runs kernels: what they need there (LibTorch's guards), undone when it ends.
  std::function<std::shared_ptr<void>()> enter_thread;
  std::function<KernelFn(const OperatorDef&)> kernel_of;
  std::function<std::string(const std::exception_ptr&)> error_text;
};

class Driver {
 public:
  using Clock = std::chrono::steady_clock;
  // A piece of a stream's work.
  struct Item {
    std::function<bool()> is_ready;  // null: always. On the driver's thread
    std::function<void()> run;
    StreamMark mark;
    Clock::time_point due;
  };
  struct Capture;  // fake_graph.h
  // What one stream was given and hasn't run. Owned by the stream and by those who still give it something: memory that
  // dies.
  struct Queue {
    explicit Queue(StreamKind of) : kind(of) {}
    const StreamKind kind;
    // Under the driver's mutex, as what follows.
    std::deque<Item> items;
    Clock::time_point last_due;
    StreamMark mark;           // of what is given now
    StreamMark running;        // of what was begun last
    int64_t errands_left = 0;  // given to the host's thread
    bool is_closed = false;    // the stream is gone
    uint32_t priority = 0;
    std::shared_ptr<Capture> capture;  // what its thread gives is written down there; null: it is run
    DeviceStream::FailureHandler on_failure;
  };

  // Made at the first call, and never destroyed: memory may die while the process ends. The setup holds from now on
  // when no stream is open, but for what its thread entered with.
  static Driver& of_process(const Setup& setup);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  // The next job of the process may have another one.
  std::shared_ptr<const Setup> setup() const {
    std::lock_guard lock(mutex_);
    return setup_;
  }

  std::shared_ptr<Queue> open(StreamKind kind);
  // Blocks until all that the queue holds has run, and its errands.
  void drain(Queue& queue);
  // Drains it; an errand that calls doesn't wait for errands.
  void close(const std::shared_ptr<Queue>& queue);
  // False when the queue is closed: nothing happens. By a thread that captures it: written down.
  bool push(Queue& queue, std::function<void()> run, std::function<bool()> is_ready = nullptr);
  // fake_graph.cc. From now on by this thread; throws when somebody does already. The second one ends it.
  void begin_capture(Queue& queue);
  std::shared_ptr<Capture> end_capture(Queue& queue);
  // All that was captured, once more.
  void push_all(Queue& queue, const std::shared_ptr<const Capture>& capture);
  void set_mark(Queue& queue, const StreamMark& mark);
  StreamMark running(const Queue& queue) const;
  void set_failure_handler(Queue& queue, DeviceStream::FailureHandler handler);
  // Of the item that runs; on the driver's thread.
  void tell_failure(const std::string& what);
  // On the host's thread, in order. By the driver's thread.
  void call_on_host(std::shared_ptr<Queue> queue, std::function<void()> errand);
  // Looks at once whether something has become ready.
  void poke();

 private:
  explicit Driver(const Setup& setup);
  ~Driver() = default;
  void loop();
  void host_loop();
  Clock::time_point next_due(Queue& queue);  // under mutex_
  // The queue to go on with, or none, and then until when nothing can change by itself.
  std::shared_ptr<Queue> choose(Clock::time_point now, Clock::time_point& next);

  mutable std::mutex mutex_;
  std::shared_ptr<const Setup> setup_;  // under mutex_; another one while no stream is open
  std::condition_variable changed_, drained_;
  std::vector<std::shared_ptr<Queue>> queues_;  // under mutex_, as all that follows
  std::mt19937_64 random_;
  std::mutex host_mutex_;
  std::condition_variable host_changed_;
  std::deque<std::function<void()>> errands_;  // under host_mutex_
  std::shared_ptr<Queue> current_;             // the thread's
  StreamMark current_mark_;                    // the thread's
  std::thread thread_, host_thread_;
};

}  // namespace dtorch::fake
