#include "runtime/comm/helper_threads.h"

#include <pthread.h>

#include <algorithm>

namespace dtorch {

HelperThreads::HelperThreads(size_t num_threads) : num_threads_(num_threads) {}

HelperThreads::~HelperThreads() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wakeup_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void HelperThreads::run(int64_t count, int64_t grain, const Work& work) {
  if (num_threads_ == 0 || count <= grain) return work(0, count);
  while (threads_.size() < num_threads_) threads_.emplace_back([this] { loop(); });
  Job job{&work, count, grain};
  {
    std::lock_guard lock(mutex_);
    job_ = &job;
    ++num_jobs_;
  }
  wakeup_.notify_all();
  take_part(job);
  std::unique_lock lock(mutex_);
  job_ = nullptr;
  left_wakeup_.wait(lock, [&] { return num_inside_ == 0; });
}

void HelperThreads::take_part(Job& job) {
  while (true) {
    const int64_t begin = job.next.fetch_add(job.grain, std::memory_order_relaxed);
    if (begin >= job.count) return;
    (*job.work)(begin, std::min(begin + job.grain, job.count));
  }
}

void HelperThreads::loop() {
  // Only for those who look at threads by name.
  static_cast<void>(pthread_setname_np(pthread_self(), "dtorch-help"));
  uint64_t last_job = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    wakeup_.wait(lock, [&] { return stop_ || (job_ != nullptr && num_jobs_ != last_job); });
    if (stop_) return;
    last_job = num_jobs_;
    Job& job = *job_;
    ++num_inside_;
    lock.unlock();
    take_part(job);
    lock.lock();
    if (--num_inside_ == 0) left_wakeup_.notify_one();
  }
}

}  // namespace dtorch
