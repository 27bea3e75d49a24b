#include "runtime/launch/launcher_watch.h"

#include <unistd.h>

#include <chrono>

#include "runtime/launch/result_file.h"

namespace dtorch {

namespace {

constexpr double kLookEveryS = 1;
constexpr double kGraceS = 4;       // for the controller to say what to do
constexpr double kForceAfterS = 3;  // for this process to end by itself

}  // namespace

LauncherWatch::LauncherWatch(std::function<void()> on_gone) : on_gone_(std::move(on_gone)), launcher_(getppid()) {
  thread_ = std::thread([this] { loop(); });
}

LauncherWatch::~LauncherWatch() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool LauncherWatch::wait_s(double seconds) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done_; });
}

void LauncherWatch::loop() {
  while (getppid() == launcher_) {
    if (!wait_s(kLookEveryS)) return;
  }
  if (!wait_s(kGraceS)) return;
  on_gone_();
  if (!wait_s(kForceAfterS)) return;
  ::_exit(kPeerLost);  // lint: allow
}

}  // namespace dtorch
