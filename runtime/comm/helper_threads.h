// HelperThreads: a few threads that share large work of the comm thread: folds and copies within one node, which would
// else run on one core. They are started when there is something for them, and sleep in between.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dtorch {

class HelperThreads {
 public:
  explicit HelperThreads(size_t num_threads);
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  // Calls `work` with disjoint ranges that cover [0, count), of `grain` but for the last, on this thread and the
  // helpers; returns when all is done. One caller at a time. `work` mustn't throw.
  using Work = std::function<void(int64_t begin, int64_t end)>;
  void run(int64_t count, int64_t grain, const Work& work);

 private:
  struct Job {
    const Work* work = nullptr;
    int64_t count = 0, grain = 1;
    std::atomic<int64_t> next{0};  // first element that nobody has taken
  };
  static void take_part(Job& job);
  void loop();

  std::mutex mutex_;
  std::condition_variable wakeup_, left_wakeup_;
  Job* job_ = nullptr;     // under mutex_: that helpers may join
  size_t num_inside_ = 0;  // under mutex_: helpers in the job
  uint64_t num_jobs_ = 0;  // under mutex_
  bool stop_ = false;      // under mutex_
  const size_t num_threads_;
  std::vector<std::thread> threads_;
};

}  // namespace dtorch
