// Watches, on a thread of its own, the process that started this one (mpirun, slurmstepd). While it lives it ends the
// job when a rank dies; when it is gone nobody would.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace dtorch {

class LauncherWatch {
 public:
  // `on_gone` runs on the watch's thread, some seconds after the launcher went away. When this object still lives a
  // while after that, the process is ended with kPeerLost.
  explicit LauncherWatch(std::function<void()> on_gone);
  ~LauncherWatch();
  LauncherWatch(const LauncherWatch&) = delete;
  LauncherWatch& operator=(const LauncherWatch&) = delete;

 private:
  void loop();
  bool wait_s(double seconds);  // false when the watch ends
  const std::function<void()> on_gone_;
  const int launcher_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace dtorch
