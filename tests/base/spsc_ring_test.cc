// The ring between two threads; also run under ThreadSanitizer.
#include "runtime/base/spsc_ring.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace dtorch {
namespace {

struct Cell {
  uint64_t number;
  uint64_t check;
};

TEST(SpscRing, CarriesRecordsOfSeveralCellsWholeAndInOrder) {
  constexpr uint64_t kRecords = 20000;
  SpscRing<Cell> ring(64);
  std::thread producer([&] {
    for (uint64_t n = 0; n < kRecords; ++n) {
      const size_t cells = 1 + n % 5;
      ASSERT_TRUE(ring.reserve(cells));
      for (size_t i = 0; i < cells; ++i) ring.reserved(i) = {n, n * 31 + i};
      ring.publish(cells);
    }
  });
  for (uint64_t n = 0; n < kRecords;) {
    ring.wait_readable();
    size_t left = ring.readable();
    while (left != 0) {
      const size_t cells = 1 + n % 5;
      ASSERT_GE(left, cells) << "a record was seen in part";
      for (size_t i = 0; i < cells; ++i) {
        ASSERT_EQ(ring.peek(i).number, n);
        ASSERT_EQ(ring.peek(i).check, n * 31 + i);
      }
      ring.consume(cells);
      left -= cells;
      ++n;
    }
  }
  producer.join();
  EXPECT_EQ(ring.readable(), 0u);
}

TEST(SpscRing, WakesAConsumerThatSleeps) {
  SpscRing<int> ring(8);
  std::thread producer([&] {
    for (int i = 0; i < 20; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ASSERT_TRUE(ring.reserve(1));
      ring.reserved(0) = i;
      ring.publish(1);
    }
  });
  for (int i = 0; i < 20; ++i) {
    while (ring.readable() == 0) ring.wait_readable(0);
    EXPECT_EQ(ring.peek(0), i);
    ring.consume(1);
  }
  producer.join();
}

TEST(SpscRing, HoldsBackAProducerThatIsAheadAndLetsItGoOn) {
  SpscRing<int> ring(4);
  std::thread producer([&] {
    for (int i = 0; i < 40; ++i) {
      ASSERT_TRUE(ring.reserve(1));
      ring.reserved(0) = i;
      ring.publish(1);
    }
  });
  for (int i = 0; i < 40; ++i) {
    if (i % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    while (ring.readable() == 0) ring.wait_readable();
    EXPECT_LE(ring.readable(), 4u);
    EXPECT_EQ(ring.peek(0), i);
    ring.consume(1);
  }
  producer.join();
}

TEST(SpscRing, LetsABlockedProducerGoWhenTheConsumerEnds) {
  SpscRing<int> ring(2);
  ASSERT_TRUE(ring.reserve(2));
  ring.publish(2);
  std::thread consumer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ring.close();
  });
  EXPECT_FALSE(ring.reserve(1));
  EXPECT_TRUE(ring.closed());
  EXPECT_FALSE(ring.reserve(1));
  consumer.join();
}

TEST(SpscRing, ReturnsFromAWaitWhenAnotherThreadAsksForIt) {
  SpscRing<int> ring(2);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ring.wake_consumer();
  });
  ring.wait_readable(0);
  EXPECT_EQ(ring.readable(), 0u);
  other.join();
  ring.wake_consumer();
  ring.wait_readable(0);  // an earlier call counts
}

TEST(SpscRing, RefusesWhatCanNeverFit) {
  SpscRing<int> ring(4);
  EXPECT_THROW(ring.reserve(5), InternalError);
  EXPECT_THROW(SpscRing<int>(6), InternalError);
}

}  // namespace
}  // namespace dtorch
