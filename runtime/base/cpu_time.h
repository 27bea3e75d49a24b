// How long a thread has been on a core, in seconds.
#pragma once
#include <pthread.h>
#include <time.h>

namespace dtorch {

// Of a thread that runs or hasn't been joined; 0 when the system doesn't tell.
inline double thread_cpu_s(pthread_t thread = pthread_self()) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace dtorch
