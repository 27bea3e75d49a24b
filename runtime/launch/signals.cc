#include "runtime/launch/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <string>

namespace dtorch {

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);
constexpr int kLooksBeforeFailure = 16;  // 4 s
constexpr int kLooksBeforeForce = 32;    // 8 s
constexpr int kInterrupted = 130;

std::atomic<MainController*> stop_target{nullptr};
std::atomic<int> last_signal{0};  // SIGTERM or SIGINT
std::atomic<int> num_interrupts{0};
static_assert(std::atomic<MainController*>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_stop_signal(int number) {
  if (number == SIGINT && num_interrupts.fetch_add(1) > 0) ::_exit(kInterrupted);  // lint: allow
  if (number != SIGUSR1) last_signal.store(number);
  if (MainController* controller = stop_target.load()) controller->request_stop();
}

template <size_t N>
void install(void (*handler)(int), std::array<struct sigaction, N>& before) {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < N; ++i) {
    if (sigaction(kStopSignals[i], &action, &before[i]) != 0) {
      throw RuntimeFault(std::string("can't handle signal ") + std::to_string(kStopSignals[i]) + ": " +
                         std::strerror(errno));
    }
  }
}

template <size_t N>
void restore(const std::array<struct sigaction, N>& before) {
  // Can't fail: the same signals were accepted before.
  for (size_t i = 0; i < N; ++i) static_cast<void>(sigaction(kStopSignals[i], &before[i], nullptr));
}

}  // namespace

StopSignals::StopSignals(MainController& controller) : controller_(controller) {
  stop_target.store(&controller);
  last_signal.store(0);
  num_interrupts.store(0);
  install(on_stop_signal, before_);
  thread_ = std::thread([this] { watch(); });
}

StopSignals::~StopSignals() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
  restore(before_);
  stop_target.store(nullptr);
}

void StopSignals::program_ended() {
  std::lock_guard lock(mutex_);
  program_ended_ = true;
}

void StopSignals::watch() {
  std::unique_lock lock(mutex_);
  for (int looks = 0;;) {
    if (changed_.wait_for(lock, kLookEvery, [&] { return done_; })) return;
    if (last_signal.load() == 0 || controller_.stop_seen() || program_ended_) continue;
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

IgnoreStopSignals::IgnoreStopSignals() { install(SIG_IGN, before_); }
IgnoreStopSignals::~IgnoreStopSignals() { restore(before_); }

}  // namespace dtorch
