// CommThread: tasks, sources, waking, failures and its two ways to end.
#include "runtime/comm/comm_thread.h"

#include <gtest/gtest.h>
#include <time.h>

#include <future>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

using std::chrono::milliseconds;

// Does nothing; says when it is destroyed.
class NullTransport final : public Transport {
 public:
  explicit NullTransport(std::vector<std::string>* log = nullptr, bool polls = false) : log_(log), polls_(polls) {}
  ~NullTransport() override {
    if (log_) log_->push_back("transport");
  }
  int32_t node() const override { return 0; }
  Request send(int32_t, uint32_t, std::span<const std::byte>, Owner) override { return 0; }
  Request receive(int32_t, uint32_t, std::span<std::byte>, Owner) override { return 0; }
  bool test(Request) override { return true; }
  void begin_epoch(uint32_t) override {}
  bool needs_polling() const override { return polls_; }
  int64_t messages_sent() const override { return 0; }
  int64_t bytes_sent() const override { return 0; }

 private:
  std::vector<std::string>* log_;
  bool polls_;
};

class FunctionTask final : public CommTask {
 public:
  explicit FunctionTask(std::function<bool()> poll, std::function<void()> destroyed = nullptr)
      : poll_(std::move(poll)), destroyed_(std::move(destroyed)) {}
  ~FunctionTask() override {
    if (destroyed_) destroyed_();
  }
  bool poll(Transport&) override { return poll_(); }

 private:
  std::function<bool()> poll_;
  std::function<void()> destroyed_;
};

IntrusivePtr<CommTask> task(std::function<bool()> poll, std::function<void()> destroyed = nullptr) {
  return IntrusivePtr<CommTask>(new FunctionTask(std::move(poll), std::move(destroyed)));
}

class FakeSource final : public ProgressSource {
 public:
  bool progress() override {
    ++turns;
    return false;
  }
  bool needs_polling() const override { return polls; }
  bool outstanding() const override { return busy; }
  void set_wakeup(std::function<void()> wake) override { has_wakeup = wake != nullptr; }
  std::atomic<bool> polls{false}, busy{false}, has_wakeup{false};
  std::atomic<int64_t> turns{0};
};

double cpu_seconds() {
  timespec time;
  EXPECT_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time), 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(CommThread, RunsTasksUntilEachSaysThatItIsDone) {
  std::atomic<int> polls{0};
  CommThread thread(std::make_unique<NullTransport>(), {}, nullptr);
  thread.submit(task([&] {
    thread.notify();
    return ++polls == 3;
  }));
  thread.stop(false);
  EXPECT_EQ(polls, 3);
}

TEST(CommThread, LaterTasksFinishWhileAnEarlierOneWaits) {
  std::promise<void> second_done;
  std::atomic<bool> release{false};
  CommThread thread(std::make_unique<NullTransport>(), {}, nullptr);
  thread.submit(task([&] { return release.load(); }));
  thread.submit(task([&] {
    second_done.set_value();
    return true;
  }));
  second_done.get_future().wait();
  release = true;
  thread.notify();
  EXPECT_TRUE(thread.stop_within(std::chrono::seconds(60)));
}

TEST(CommThread, WakesFromEndlessSleepWhenNotified) {
  std::atomic<bool> ready{false};
  std::promise<void> done;
  CommThread thread(std::make_unique<NullTransport>(), {}, nullptr);
  thread.submit(task([&] {
    if (!ready) return false;
    done.set_value();
    return true;
  }));
  std::future<void> future = done.get_future();
  EXPECT_EQ(future.wait_for(milliseconds(30)), std::future_status::timeout);  // long enough to be asleep
  ready = true;
  thread.notify();
  future.wait();
  thread.stop(false);
}

// Sleeps until it is ready.
class Sleeper final : public CommTask {
 public:
  explicit Sleeper(CommTask* whole = nullptr) {
    if (whole != nullptr) set_part_of(*this, whole);
  }
  bool poll(Transport&) override {
    ++polls;
    return ready;
  }
  bool sleeps() const override { return true; }
  std::atomic<int> polls{0};
  std::atomic<bool> ready{false};
};

TEST(CommThread, ASleepingTaskIsPolledWhenItIsWoken) {
  CommThread thread(std::make_unique<NullTransport>(), {}, nullptr);
  std::vector<IntrusivePtr<Sleeper>> tasks;
  for (int i = 0; i < 5; ++i) {
    tasks.emplace_back(new Sleeper);
    thread.submit(IntrusivePtr<CommTask>(tasks.back().get()));
  }
  // One that was polled later has been put to sleep behind these.
  const auto turn = [&] {
    std::promise<void> polled;
    thread.submit(task([&] {
      polled.set_value();
      return true;
    }));
    polled.get_future().wait();
  };
  turn();
  for (int i : {2, 0, 4}) {
    tasks[static_cast<size_t>(i)]->ready = true;
    thread.wake(IntrusivePtr<CommTask>(tasks[static_cast<size_t>(i)].get()));
    thread.wake(IntrusivePtr<CommTask>(tasks[static_cast<size_t>(i)].get()));  // once more: it has ended
  }
  turn();
  turn();
  for (int i : {0, 2, 4}) EXPECT_EQ(tasks[static_cast<size_t>(i)]->polls, 2) << i;
  for (int i : {1, 3}) EXPECT_EQ(tasks[static_cast<size_t>(i)]->polls, 1) << i;
  // The end waits for those that sleep.
  for (int i : {1, 3}) {
    tasks[static_cast<size_t>(i)]->ready = true;
    thread.wake(IntrusivePtr<CommTask>(tasks[static_cast<size_t>(i)].get()));
  }
  EXPECT_TRUE(thread.stop_within(std::chrono::seconds(60)));
}

TEST(CommThread, APartWakesTheWhole) {
  CommThread thread(std::make_unique<NullTransport>(), {}, nullptr);
  const IntrusivePtr<Sleeper> whole(new Sleeper);
  const IntrusivePtr<Sleeper> part(new Sleeper(whole.get()));
  thread.submit(IntrusivePtr<CommTask>(whole.get()));
  whole->ready = true;
  thread.wake(IntrusivePtr<CommTask>(part.get()));
  EXPECT_TRUE(thread.stop_within(std::chrono::seconds(60)));
  EXPECT_EQ(part->polls, 0);
}

TEST(CommThread, ANewEpochDropsTasksThatSleep) {
  CommThread thread(std::make_unique<NullTransport>(), {}, nullptr);
  const IntrusivePtr<Sleeper> dropped(new Sleeper), next(new Sleeper);
  thread.submit(IntrusivePtr<CommTask>(dropped.get()));
  thread.begin_epoch(2);
  thread.submit(IntrusivePtr<CommTask>(next.get()));
  dropped->ready = next->ready = true;
  thread.wake(IntrusivePtr<CommTask>(dropped.get()));  // by a stream that hasn't heard of it
  thread.wake(IntrusivePtr<CommTask>(next.get()));
  EXPECT_TRUE(thread.stop_within(std::chrono::seconds(60)));
  EXPECT_EQ(dropped->ref_count(), 1U);
}

TEST(CommThread, AnExceptionOfATaskEndsTheThreadAndIsReported) {
  std::promise<std::string> reported;
  CommThread thread(std::make_unique<NullTransport>(), {}, [&](std::exception_ptr failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const RuntimeFault& fault) {
      reported.set_value(fault.what());
    }
  });
  thread.submit(task([]() -> bool { throw RuntimeFault("broken wire"); }));
  EXPECT_EQ(reported.get_future().get(), "broken wire");
  EXPECT_FALSE(thread.stop_within(std::chrono::seconds(60)));
  thread.submit(task([] { return true; }));  // dropped
}

TEST(CommThread, AnOrderlyStopWaitsForSources) {
  FakeSource source;
  source.busy = true;
  source.polls = true;
  CommThread thread(nullptr, {&source}, nullptr);
  EXPECT_TRUE(source.has_wakeup);
  std::promise<bool> ended;
  std::thread stopper([&] { ended.set_value(thread.stop_within(std::chrono::seconds(60))); });
  std::future<bool> future = ended.get_future();
  EXPECT_EQ(future.wait_for(milliseconds(30)), std::future_status::timeout);
  source.busy = false;
  EXPECT_TRUE(future.get());
  stopper.join();
}

TEST(CommThread, StopsByForceWhenATaskNeverEnds) {
  CommThread thread(std::make_unique<NullTransport>(nullptr, true), {}, nullptr);
  thread.submit(task([] { return false; }));
  EXPECT_FALSE(thread.stop_within(milliseconds(20)));
}

TEST(CommThread, ForceEndsAnOrderlyStopOfAnotherThread) {
  CommThread thread(std::make_unique<NullTransport>(), {}, nullptr);
  thread.submit(task([] { return false; }));
  std::thread stopper([&] { thread.stop(false); });
  thread.stop(true);
  stopper.join();
}

TEST(CommThread, UnfinishedTasksOutliveTheTransportThatUsesTheirBuffers) {
  std::vector<std::string> log;
  FakeSource source;
  {
    std::promise<void> started;
    std::atomic<bool> once{false};
    CommThread thread(std::make_unique<NullTransport>(&log), {&source}, nullptr);
    thread.submit(task(
        [&] {
          if (!once.exchange(true)) started.set_value();
          return false;
        },
        [&log] { log.push_back("task"); }));
    started.get_future().wait();
  }
  EXPECT_EQ(log, (std::vector<std::string>{"transport", "task"}));
  EXPECT_FALSE(source.has_wakeup);
}

TEST(CommThread, AFinishedTaskIsReleasedAtOnce) {
  std::promise<void> released;
  CommThread thread(std::make_unique<NullTransport>(), {}, nullptr);
  thread.submit(task([] { return false; }));
  thread.submit(task([] { return true; }, [&] { released.set_value(); }));
  released.get_future().wait();
}

TEST(CommThread, AnIdleThreadCostsNextToNothing) {
  FakeSource source;
  source.polls = true;
  CommThread thread(std::make_unique<NullTransport>(), {&source}, nullptr);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_LT(cpu_seconds() - before, 0.15);
  EXPECT_GT(source.turns, 100);  // it does poll
}

TEST(CommThread, RefusesTasksWithoutATransport) {
  CommThread thread(nullptr, {}, nullptr);
  EXPECT_THROW(thread.submit(task([] { return true; })), InternalError);
}

}  // namespace
}  // namespace dtorch
