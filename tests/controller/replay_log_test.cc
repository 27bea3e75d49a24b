// What is kept to be sent again, and when that is too much.
#include "runtime/controller/replay_log.h"

#include <gtest/gtest.h>

namespace dtorch {
namespace {

constexpr int64_t kMaxBytes = 64 << 10;

ReplayLog::Item item_of(Sequence sequence, size_t feed_bytes = 0) {
  ReplayLog::Item item{.sequence = sequence, .graph = 1, .num_operators = 1};
  item.message.head = std::make_shared<const Bytes>(100);
  if (feed_bytes != 0) {
    item.feeds.emplace_back();
    item.feeds.back().bytes = std::make_shared<const Bytes>(feed_bytes);
  }
  return item;
}

// A snapshot of everything so far becomes the base.
void take_snapshot(ReplayLog& log, Sequence last) {
  log.cut(last, 0);
  log.commit();
}

TEST(ReplayLog, KeepsWhatWasSentSinceTheBase) {
  ReplayLog log(1000, kMaxBytes);
  for (Sequence sequence = 1; sequence <= 3; ++sequence) log.add(item_of(sequence, 1000));
  EXPECT_TRUE(log.is_complete());
  EXPECT_GT(log.num_bytes(), 3 * 1100);
  EXPECT_FALSE(log.is_cut_due());
  take_snapshot(log, 3);
  EXPECT_TRUE(log.items().empty());
  EXPECT_EQ(log.num_bytes(), 0);
}

TEST(ReplayLog, GivesUpWhatIsTooMuchUntilTheNextSnapshot) {
  ReplayLog log(1000, kMaxBytes);
  log.add(item_of(1, kMaxBytes / 2));
  EXPECT_TRUE(log.is_complete());
  log.add(item_of(2, kMaxBytes / 2));
  EXPECT_FALSE(log.is_complete());
  EXPECT_TRUE(log.is_cut_due());
  EXPECT_EQ(log.num_bytes(), 0);
  EXPECT_TRUE(log.items().empty());
  // What comes after is kept, but is no use without what came before.
  log.add(item_of(3, 1000));
  EXPECT_FALSE(log.is_complete());
  EXPECT_NE(log.items().back().message.head, nullptr);
  take_snapshot(log, 3);
  EXPECT_TRUE(log.is_complete());
  EXPECT_EQ(log.num_bytes(), 0);
}

TEST(ReplayLog, ASnapshotThatWasCutBeforeDoesNotMakeItWhole) {
  ReplayLog log(1000, kMaxBytes);
  log.add(item_of(1));
  log.cut(1, 0);
  log.add(item_of(2, kMaxBytes));
  log.commit();  // stored meanwhile
  EXPECT_FALSE(log.is_complete());
  EXPECT_TRUE(log.items().empty());
  EXPECT_TRUE(log.is_cut_due());
}

TEST(ReplayLog, WhatNodesHaveLearnedOutlivesWhatWasGivenUp) {
  ReplayLog log(1000, kMaxBytes);
  ReplayLog::Item teaching = item_of(2, 1000);
  teaching.new_specs.emplace_back();
  log.add(item_of(1));
  log.add(std::move(teaching));
  log.add(item_of(3, kMaxBytes));
  ASSERT_EQ(log.items().size(), 1u);
  EXPECT_EQ(log.items().front().sequence, 2u);
  EXPECT_EQ(log.items().front().message.head, nullptr);
  EXPECT_EQ(log.num_bytes(), static_cast<int64_t>(sizeof(ReplayLog::Item)));
  log.add(item_of(4, kMaxBytes));  // once more, with one that is kept before it
  EXPECT_EQ(log.items().size(), 1u);
  take_snapshot(log, 4);
  EXPECT_EQ(log.num_bytes(), 0);
  PieceEncoder encoder;
  EXPECT_EQ(log.definitions(encoder).size(), 1u);
}

TEST(ReplayLog, ItsBytesAreBoundedHoweverMuchIsSent) {
  ReplayLog log(1000, kMaxBytes);
  for (Sequence sequence = 1; sequence <= 100; ++sequence) {
    log.add(item_of(sequence, kMaxBytes / 3));
    EXPECT_LE(log.num_bytes(), kMaxBytes);
  }
}

}  // namespace
}  // namespace dtorch
