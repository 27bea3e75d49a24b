// HelperThreads: every range once, shared, and nothing left running.
#include "runtime/comm/helper_threads.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

namespace dtorch {
namespace {

TEST(HelperThreads, CoverEveryElementOnceInRangesOfTheGrain) {
  HelperThreads helpers(3);
  for (int64_t count : {0, 1, 7, 8, 9, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    helpers.run(count, 8, [&](int64_t begin, int64_t end) {
      EXPECT_LE(end, count);
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(HelperThreads, ShareTheWork) {
  HelperThreads helpers(1);
  // Each of two ranges waits until somebody else has begun the other one.
  std::mutex mutex;
  std::condition_variable wakeup;
  std::set<std::thread::id> threads;
  helpers.run(2, 1, [&](int64_t, int64_t) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    wakeup.notify_all();
    wakeup.wait(lock, [&] { return threads.size() == 2; });
  });
  EXPECT_EQ(threads.size(), 2U);
}

TEST(HelperThreads, AreBackWhenACallReturns) {
  HelperThreads helpers(2);
  for (int i = 0; i < 2000; ++i) {
    std::atomic<int> sum{0};
    helpers.run(4, 1, [&](int64_t begin, int64_t) { sum += static_cast<int>(begin); });
    ASSERT_EQ(sum, 6);
  }
}

}  // namespace
}  // namespace dtorch
