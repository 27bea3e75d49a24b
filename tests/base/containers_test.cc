// The small containers of runtime/base, on one thread.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/blocking_queue.h"
#include "runtime/base/error.h"
#include "runtime/base/inline_vector.h"
#include "runtime/base/intrusive.h"

namespace dtorch {
namespace {

using Small = InlineVector<int64_t, 4>;

TEST(InlineVector, InsertsAndErasesInTheMiddle) {
  Small v{1, 4};
  v.insert(v.begin() + 1, 3);
  v.insert(v.begin() + 1, 2);
  EXPECT_EQ(v, (Small{1, 2, 3, 4}));
  EXPECT_EQ(*v.erase(v.begin()), 2);
  EXPECT_EQ(v, (Small{2, 3, 4}));
  EXPECT_EQ(v.back(), 4);
}

TEST(InlineVector, RefusesAnItemBeyondItsCapacityAndStaysAsItWas) {
  Small v(4, 7);
  EXPECT_THROW(v.push_back(8), ShapeError);
  EXPECT_THROW(v.insert(v.begin(), 8), ShapeError);
  EXPECT_EQ(v, (Small{7, 7, 7, 7}));
  const std::vector<int64_t> five(5);
  EXPECT_THROW(Small(five.begin(), five.end()), ShapeError);
}

TEST(InlineVector, ComparesByItemsInUseOnly) {
  Small a{1, 2, 3};
  a.resize(2);
  EXPECT_EQ(a, (Small{1, 2}));
  a.resize(3);
  EXPECT_EQ(a, (Small{1, 2, 0}));
}

struct Counted : RefCounted {
  explicit Counted(int* deaths) : deaths(deaths) {}
  ~Counted() { ++*deaths; }
  int* deaths;
};

TEST(IntrusivePtr, DestroysTheObjectWithItsLastHandle) {
  int deaths = 0;
  auto a = make_intrusive<Counted>(&deaths);
  IntrusivePtr<Counted> b = a;
  IntrusivePtr<Counted> c = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_EQ(b->ref_count(), 2u);
  b = c;
  b.reset();
  EXPECT_EQ(deaths, 0);
  c = nullptr;
  EXPECT_EQ(deaths, 1);
}

TEST(IntrusivePtr, CountsHandlesOfSeveralThreads) {
  int deaths = 0;
  {
    auto shared = make_intrusive<Counted>(&deaths);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([shared] {
        for (int i = 0; i < 2000; ++i) {
          IntrusivePtr<Counted> copy = shared;
          EXPECT_GE(copy->ref_count(), 2u);
        }
      });
    }
    shared.reset();
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(deaths, 1);
}

TEST(BlockingQueue, DeliversEveryItemOfEveryProducerInItsOrder) {
  constexpr int kProducers = 3, kItems = 3000;
  BlockingQueue<std::pair<int, int>> queue;
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kItems; ++i) queue.push({p, i});
    });
  }
  std::vector<int> next(kProducers);
  for (int n = 0; n < kProducers * kItems; ++n) {
    const auto item = queue.pop();
    ASSERT_TRUE(item.has_value());
    EXPECT_EQ(item->second, next[static_cast<size_t>(item->first)]++);
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_TRUE(queue.empty());
}

TEST(BlockingQueue, WakesAWaitingConsumerWhenItIsClosed) {
  BlockingQueue<int> queue;
  std::thread closer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    queue.push(1);
    queue.close();
  });
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
  closer.join();
}

TEST(BlockingQueue, GivesUpAfterTheTimeout) {
  BlockingQueue<int> queue;
  EXPECT_EQ(queue.try_pop(), std::nullopt);
  EXPECT_EQ(queue.pop_for(std::chrono::milliseconds(5)), std::nullopt);
  queue.push(3);
  EXPECT_EQ(queue.pop_for(std::chrono::milliseconds(5)), 3);
}

TEST(Check, NamesTheConditionThePlaceAndTheDetail) {
  try {
    DTORCH_CHECK(1 + 1 == 3, "arithmetic");
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos) << text;
    EXPECT_NE(text.find("containers_test.cc"), std::string::npos) << text;
    EXPECT_NE(text.find("arithmetic"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace dtorch
