#include "runtime/comm/comm_thread.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

using std::chrono::nanoseconds;

constexpr int64_t kLongestTurnNs = 100'000'000;
constexpr int64_t kSpinNs = 20'000;
constexpr int64_t kFirstSleepNs = 5'000;
constexpr int64_t kLongestShortSleepNs = 200'000;
constexpr int64_t kQuietAfterNs = 10'000'000;  // then 1 ms
constexpr int64_t kQuietSleepNs = 1'000'000;
constexpr int64_t kAsleepAfterNs = 1'000'000'000;  // then 10 ms
constexpr int64_t kAsleepSleepNs = 10'000'000;

int64_t now_ns() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A sleep grows with the time since the last activity, so that what waits is found after at most a third more than it
// took.
int64_t sleep_ns(int64_t idle_ns) {
  if (idle_ns >= kAsleepAfterNs) return kAsleepSleepNs;
  if (idle_ns >= kQuietAfterNs) return kQuietSleepNs;
  return std::clamp(idle_ns / 3, kFirstSleepNs, kLongestShortSleepNs);
}

}  // namespace

CommThread::CommThread(std::unique_ptr<Transport> transport, std::vector<ProgressSource*> sources,
                       std::function<void(std::exception_ptr)> on_failure)
    : transport_(std::move(transport)), sources_(std::move(sources)), on_failure_(std::move(on_failure)) {
  if (transport_) transport_->set_wakeup([this] { notify(); });
  for (ProgressSource* source : sources_) source->set_wakeup([this] { notify(); });
  thread_ = std::thread([this] { loop(); });
}

CommThread::~CommThread() {
  stop(true);
  for (ProgressSource* source : sources_) source->set_wakeup(nullptr);
  if (transport_) transport_->set_wakeup(nullptr);
  transport_.reset();
}

void CommThread::submit(IntrusivePtr<CommTask> task) {
  DTORCH_CHECK(transport_ != nullptr, "a comm thread without a transport runs no tasks");
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    submitted_.push_back(std::move(task));
  }
  notify();
}

void CommThread::wake(IntrusivePtr<CommTask> task) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    woken_.push_back(std::move(task));
  }
  notify();
}

void CommThread::inspect(Look look) {
  {
    std::lock_guard lock(mutex_);
    looks_.push_back(std::move(look));
  }
  notify();
}

void CommThread::begin_epoch(uint32_t epoch) {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  new_epoch_ = epoch;
  lock.unlock();
  notify();
  lock.lock();
  ended_wakeup_.wait(lock, [&] { return !new_epoch_ || ended_; });
}

// Tasks go after the transport's requests, which use their memory.
void CommThread::drop_tasks(uint32_t epoch) {
  if (transport_) transport_->begin_epoch(epoch);
  running_.clear();
  for (const IntrusivePtr<CommTask>& task : asleep_tasks_) task->asleep_at_ = CommTask::kAwake;
  asleep_tasks_.clear();
  std::lock_guard lock(mutex_);
  new_epoch_.reset();
  ended_wakeup_.notify_all();
}

void CommThread::notify() {
  notified_.store(true, std::memory_order_seq_cst);
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  std::lock_guard lock(mutex_);
  wakeup_.notify_one();
}

void CommThread::request_stop(bool force) {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    force_ = force_ || force;
  }
  notify();
}

void CommThread::join() {
  if (std::this_thread::get_id() == thread_.get_id()) return;  // from on_failure
  std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void CommThread::stop(bool force) {
  request_stop(force);
  join();
}

bool CommThread::stop_within(nanoseconds grace) {
  request_stop(false);
  {
    std::unique_lock lock(mutex_);
    if (!ended_wakeup_.wait_for(lock, grace, [&] { return ended_; })) force_ = true;
  }
  notify();
  join();
  return orderly_;
}

void CommThread::loop() {
  // Both only make things better where they are allowed: the name in tools, and short sleeps that are short.
  static_cast<void>(pthread_setname_np(pthread_self(), "dtorch-comm"));
  static_cast<void>(prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL));
  std::exception_ptr failure;
  try {
    int64_t active_at = now_ns();
    while (true) {
      const bool active = turn();
      if (may_end()) break;
      const int64_t now = now_ns();
      if (active)
        active_at = now;
      else
        idle(now - active_at);
    }
    orderly_ = !forced_;
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure && on_failure_) on_failure_(failure);
  std::lock_guard lock(mutex_);
  ended_ = true;
  // Dropped, but destroyed after the transport like the ones that run.
  std::move(submitted_.begin(), submitted_.end(), std::back_inserter(running_));
  submitted_.clear();
  std::move(woken_.begin(), woken_.end(), std::back_inserter(running_));
  woken_.clear();
  ended_wakeup_.notify_all();
}

bool CommThread::turn() {
  bool active = notified_.load(std::memory_order_relaxed) && notified_.exchange(false, std::memory_order_seq_cst);
  std::vector<Look> looks;
  std::optional<uint32_t> new_epoch;
  if (active) {
    std::lock_guard lock(mutex_);
    stopping_ = stop_;
    forced_ = force_;
    taken_.swap(submitted_);
    taken_woken_.swap(woken_);
    looks.swap(looks_);
    new_epoch = new_epoch_;
  }
  wake_tasks();
  for (IntrusivePtr<CommTask>& task : taken_) {
    task->submission_ = ++num_submitted_;
    running_.push_back(std::move(task));
  }
  taken_.clear();
  if (new_epoch) drop_tasks(*new_epoch);
  if (!looks.empty()) look_at_tasks(looks);
  if (forced_) return true;
  active |= progress_sources();
  if (transport_) {
    active |= poll_tasks();
    transport_->tidy();
  }
  return active;
}

void CommThread::wake_tasks() {
  for (IntrusivePtr<CommTask>& task : taken_woken_) {
    CommTask* const whole = task->whole_ == nullptr ? task.get() : task->whole_;
    const size_t at = std::exchange(whole->asleep_at_, CommTask::kAwake);
    if (at == CommTask::kAwake) continue;
    running_.push_back(std::move(asleep_tasks_[at]));
    if (at + 1 != asleep_tasks_.size()) {
      asleep_tasks_[at] = std::move(asleep_tasks_.back());
      asleep_tasks_[at]->asleep_at_ = at;
    }
    asleep_tasks_.pop_back();
  }
  taken_woken_.clear();
}

void CommThread::put_to_sleep(IntrusivePtr<CommTask> task) {
  task->asleep_at_ = asleep_tasks_.size();
  asleep_tasks_.push_back(std::move(task));
}

void CommThread::look_at_tasks(const std::vector<Look>& looks) const {
  std::vector<IntrusivePtr<CommTask>> all = running_;
  all.insert(all.end(), asleep_tasks_.begin(), asleep_tasks_.end());
  std::ranges::sort(all, {}, [](const IntrusivePtr<CommTask>& task) { return task->submission_; });
  for (const Look& look : looks) look(all);
}

bool CommThread::progress_sources() {
  bool active = false;
  for (ProgressSource* source : sources_) active |= source->progress();
  progressed_ns_ = now_ns();
  return active;
}

bool CommThread::poll_tasks() {
  const uint64_t completed = transport_->completed();
  size_t left = 0;
  size_t num_put_to_sleep = 0;
  // Finished tasks are let go at once: their results and buffers must not wait for the others.
  for (size_t i = 0; i < running_.size(); ++i) {
    // Tasks that build large values mustn't make this process look dead.
    if (i != 0 && !sources_.empty() && now_ns() - progressed_ns_ > kLongestTurnNs) progress_sources();
    if (running_[i]->poll(*transport_)) {
      running_[i].reset();
      continue;
    }
    if (running_[i]->sleeps()) {
      put_to_sleep(std::move(running_[i]));
      ++num_put_to_sleep;
      continue;
    }
    if (left != i) running_[left] = std::move(running_[i]);
    ++left;
  }
  const bool finished = left + num_put_to_sleep != running_.size();
  running_.resize(left);
  return finished || transport_->completed() != completed;
}

bool CommThread::may_end() const {
  if (forced_) return true;
  if (!stopping_ || !running_.empty() || !asleep_tasks_.empty()) return false;
  return std::none_of(sources_.begin(), sources_.end(),
                      [](const ProgressSource* source) { return source->outstanding(); });
}

void CommThread::idle(int64_t idle_ns) {
  if (idle_ns < kSpinNs) {
    std::this_thread::yield();
    return;
  }
  bool polling = transport_ && transport_->needs_polling() && !running_.empty();
  for (const ProgressSource* source : sources_) polling |= source->needs_polling();
  const auto notified = [&] { return notified_.load(std::memory_order_seq_cst); };
  std::unique_lock lock(mutex_);
  asleep_.store(true, std::memory_order_seq_cst);
  if (polling)
    wakeup_.wait_for(lock, nanoseconds(sleep_ns(idle_ns)), notified);
  else
    wakeup_.wait(lock, notified);
  asleep_.store(false, std::memory_order_relaxed);
}

}  // namespace dtorch
