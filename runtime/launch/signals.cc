#include "runtime/launch/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>

#include "io/checkpoint.h"
#include "runtime/base/log.h"

namespace dtorch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookEvery = std::chrono::milliseconds(250);
constexpr int kLooksBeforeFailure = 16;  // 4 s
constexpr int kLooksBeforeForce = 32;    // 8 s
constexpr int kInterrupted = 130;

std::atomic<MainController*> stop_target{nullptr};
std::atomic<int> last_signal{0};  // SIGTERM or SIGINT
std::atomic<int> num_interrupts{0};
std::atomic<bool> status_wanted{false};
std::atomic<bool> early_stop{false};
static_assert(std::atomic<MainController*>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

void on_early_stop(int) { early_stop.store(true); }

void on_signal(int number) {
  if (number == SIGUSR2) return status_wanted.store(true);
  if (number == SIGINT && num_interrupts.fetch_add(1) > 0) ::_exit(kInterrupted);  // lint: allow
  if (number != SIGUSR1) last_signal.store(number);
  if (MainController* controller = stop_target.load()) controller->request_stop();
}

void install(int number, void (*handler)(int), struct sigaction* before) {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  if (sigaction(number, &action, before) != 0)
    throw RuntimeFault(std::string("can't handle signal ") + std::to_string(number) + ": " + std::strerror(errno));
}

template <size_t N>
void install(void (*handler)(int), std::array<struct sigaction, N>& before) {
  for (size_t i = 0; i < N; ++i) install(kSignals[i], handler, &before[i]);
}

template <size_t N>
void restore(const std::array<struct sigaction, N>& before) {
  // Can't fail: the same signals were accepted before.
  for (size_t i = 0; i < N; ++i) static_cast<void>(sigaction(kSignals[i], &before[i], nullptr));
}

}  // namespace

void keep_early_stop_signal() {
  early_stop.store(false);
  install(SIGUSR1, on_early_stop, nullptr);
}

JobSignals::JobSignals(MainController& controller, double stop_after_s, double save_limit_s)
    : controller_(controller), stop_after_s_(stop_after_s), save_limit_s_(save_limit_s) {
  stop_target.store(&controller);
  last_signal.store(0);
  num_interrupts.store(0);
  status_wanted.store(false);
  install(on_signal, before_);
  if (early_stop.exchange(false)) controller.request_stop();
  thread_ = std::thread([this] { watch(); });
}

JobSignals::~JobSignals() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
  restore(before_);
  stop_target.store(nullptr);
}

void JobSignals::program_ended() {
  std::lock_guard lock(mutex_);
  program_ended_ = true;
}

void JobSignals::watch() {
  const auto start = Clock::now();
  std::optional<Clock::time_point> asked;
  bool time_is_over = stop_after_s_ <= 0;
  std::unique_lock lock(mutex_);
  for (int looks = 0;;) {
    if (changed_.wait_for(lock, kLookEvery, [&] { return done_; })) return;
    if (!time_is_over && seconds_since(start) > stop_after_s_) {
      time_is_over = true;
      log_info("--stop-after: the time is over");
      controller_.request_stop();
    }
    if (status_wanted.exchange(false)) {
      lock.unlock();
      std::cerr << "status: " + controller_.describe_status() + "\n" << std::flush;
      lock.lock();
    }
    if (last_signal.load() == 0 || program_ended_) continue;
    if (!asked) asked = Clock::now();
    const bool is_saving = checkpoint::is_writing();
    const bool is_stuck = is_saving && save_limit_s_ > 0 && seconds_since(*asked) > save_limit_s_;
    if (!is_stuck && (is_saving || controller_.stop_seen())) continue;
    ++looks;
    const std::string text = std::string("stopped by ") + (last_signal.load() == SIGINT ? "SIGINT" : "SIGTERM");
    if (looks == kLooksBeforeFailure) {
      lock.unlock();
      controller_.fail(std::make_exception_ptr(RuntimeFault(text)));
      lock.lock();
    } else if (looks == kLooksBeforeForce) {
      std::cerr << "error: " + text + "\n" << std::flush;
      ::_exit(1);  // lint: allow
    }
  }
}

IgnoreJobSignals::IgnoreJobSignals() { install(SIG_IGN, before_); }
IgnoreJobSignals::~IgnoreJobSignals() { restore(before_); }

}  // namespace dtorch
