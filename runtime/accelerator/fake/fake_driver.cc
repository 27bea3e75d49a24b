#include "runtime/accelerator/fake/fake_driver.h"

#include <algorithm>

#include "runtime/accelerator/fake/fake_graph.h"
#include "runtime/base/error.h"

namespace dtorch::fake {

Driver::Driver(const Setup& setup) : setup_(std::make_shared<const Setup>(setup)), random_(setup.seed) {
  thread_ = std::thread([this] { loop(); });
  host_thread_ = std::thread([this] { host_loop(); });
}

Driver& Driver::of_process(const Setup& setup) {
  static auto* instance = new Driver(setup);
  std::lock_guard lock(instance->mutex_);
  if (instance->queues_.empty()) {
    instance->setup_ = std::make_shared<const Setup>(setup);
    instance->random_.seed(setup.seed);
  }
  return *instance;
}

std::shared_ptr<Driver::Queue> Driver::open(StreamKind kind) {
  auto queue = std::make_shared<Queue>(kind);
  std::lock_guard lock(mutex_);
  queue->priority = static_cast<uint32_t>(random_());
  queues_.push_back(queue);
  return queue;
}

void Driver::drain(Queue& queue) {
  const std::thread::id self = std::this_thread::get_id();
  DTORCH_CHECK(self != thread_.get_id() && self != host_thread_.get_id(), "a fake device waits for itself");
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [&] { return queue.items.empty() && queue.errands_left == 0; });
}

void Driver::close(const std::shared_ptr<Queue>& queue) {
  const bool is_errand = std::this_thread::get_id() == host_thread_.get_id();
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [&] { return queue->items.empty() && (is_errand || queue->errands_left == 0); });
  queue->is_closed = true;
  std::erase(queues_, queue);
}

bool Driver::push(Queue& queue, std::function<void()> run, std::function<bool()> is_ready) {
  {
    std::lock_guard lock(mutex_);
    if (queue.is_closed) return false;
    if (queue.capture && queue.capture.get() == capture_of_thread()) {
      queue.capture->items.push_back({std::move(is_ready), std::move(run), queue.mark, {}});
      return true;
    }
    queue.items.push_back({std::move(is_ready), std::move(run), queue.mark, next_due(queue)});
  }
  changed_.notify_all();
  return true;
}

Driver::Clock::time_point Driver::next_due(Queue& queue) {
  const auto most = static_cast<uint64_t>(setup_->most_delay.count());
  // Mostly soon, so that a program isn't slower than it must be.
  const uint64_t delay = most == 0 ? 0 : random_() % 4 == 0 ? random_() % most : random_() % (most / 8 + 1);
  queue.last_due = std::max(queue.last_due, Clock::now() + std::chrono::microseconds(delay));
  return queue.last_due;
}

void Driver::set_mark(Queue& queue, const StreamMark& mark) {
  std::lock_guard lock(mutex_);
  queue.mark = mark;
}

StreamMark Driver::running(const Queue& queue) const {
  std::lock_guard lock(mutex_);
  return queue.running;
}

void Driver::set_failure_handler(Queue& queue, DeviceStream::FailureHandler handler) {
  std::lock_guard lock(mutex_);
  queue.on_failure = std::move(handler);
}

void Driver::tell_failure(const std::string& what) {
  if (current_->on_failure) current_->on_failure(current_mark_, what);
}

void Driver::call_on_host(std::shared_ptr<Queue> queue, std::function<void()> errand) {
  {
    std::lock_guard lock(mutex_);
    ++queue->errands_left;
  }
  {
    std::lock_guard lock(host_mutex_);
    errands_.push_back([this, queue = std::move(queue), errand = std::move(errand)]() mutable {
      errand();
      errand = nullptr;
      std::lock_guard lock(mutex_);
      if (--queue->errands_left == 0) drained_.notify_all();
    });
  }
  host_changed_.notify_all();
}

void Driver::poke() {
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

std::shared_ptr<Driver::Queue> Driver::choose(Clock::time_point now, Clock::time_point& next) {
  // One stream runs far ahead of the others, until the next draw.
  if (random_() % 8 == 0) {
    for (const std::shared_ptr<Queue>& queue : queues_) queue->priority = static_cast<uint32_t>(random_());
  }
  std::shared_ptr<Queue> best;
  for (const std::shared_ptr<Queue>& queue : queues_) {
    if (queue->items.empty()) continue;
    const Item& item = queue->items.front();
    if (item.due > now) {
      next = std::min(next, item.due);
      continue;
    }
    if (item.is_ready && !item.is_ready()) continue;
    if (!best || queue->priority > best->priority) best = queue;
  }
  return best;
}

void Driver::loop() {
  const std::shared_ptr<const Setup> setup = this->setup();
  const std::shared_ptr<void> scope = setup->enter_thread ? setup->enter_thread() : nullptr;
  std::unique_lock lock(mutex_);
  while (true) {
    // What is waited for without an end (a collective whose other ranks don't come) is looked at from time to time.
    constexpr auto kLook = std::chrono::milliseconds(20);
    const Clock::time_point now = Clock::now();
    Clock::time_point next = now + kLook;
    current_ = choose(now, next);
    if (!current_) {
      const bool is_idle = std::ranges::all_of(queues_, [](const auto& queue) { return queue->items.empty(); });
      if (is_idle)
        changed_.wait(lock);
      else
        changed_.wait_until(lock, next);
      continue;
    }
    Item& item = current_->items.front();  // stays where it is: others only push behind it
    current_->running = current_mark_ = item.mark;
    lock.unlock();
    item.run();
    // What it held dies before it counts as done.
    item = {};
    lock.lock();
    current_->items.pop_front();
    if (current_->items.empty()) drained_.notify_all();
  }
}

void Driver::host_loop() {
  std::unique_lock lock(host_mutex_);
  while (true) {
    host_changed_.wait(lock, [&] { return !errands_.empty(); });
    std::function<void()> errand = std::move(errands_.front());
    errands_.pop_front();
    lock.unlock();
    errand();
    errand = nullptr;
    lock.lock();
  }
}

}  // namespace dtorch::fake
