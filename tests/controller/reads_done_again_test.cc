// What the program was told, against what comes when the work is done again.
#include "runtime/controller/read_checks.h"

#include <gtest/gtest.h>

#include <memory>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

// Half of a value of eight bytes.
ReadChecks::ReadBox half(int64_t at, std::byte content) {
  return {{.offset = {4 * at}, .size = {4}}, std::make_shared<const Bytes>(4, content)};
}

class ReadsDoneAgain : public testing::Test {
 protected:
  void SetUp() override { checks_.enter(1, 10); }
  size_t add(int64_t at, std::byte content = std::byte{7}) { return checks_.add_box(1, half(at, content), 8).size(); }
  ReadChecks checks_;
};

TEST_F(ReadsDoneAgain, BoxesAreHandedOverWithTheLast) {
  EXPECT_EQ(add(0), 0u);
  EXPECT_EQ(add(1), 2u);
}

TEST_F(ReadsDoneAgain, BoxesOfAValueThatWasNotWholeComeAnew) {
  add(0);
  checks_.restart();
  EXPECT_EQ(add(1), 0u);
  EXPECT_EQ(add(0), 2u);
}

// All of it had come, but not every acknowledgement, when a node was lost; its piece settles between the boxes that
// come again.
TEST_F(ReadsDoneAgain, AWholeValueIsTheSameWhenItIsDeliveredBetweenBoxesThatComeAgain) {
  add(0, std::byte{1});
  add(1, std::byte{2});
  checks_.restart();
  EXPECT_EQ(add(0, std::byte{1}), 0u);
  checks_.deliver(1, false);
  EXPECT_NO_THROW(add(1, std::byte{2}));
  EXPECT_NO_THROW(checks_.forget(10));
}

TEST_F(ReadsDoneAgain, AnotherValueIsAFailure) {
  add(0);
  add(1);
  checks_.deliver(1, false);
  checks_.restart();
  add(0);
  EXPECT_THROW(add(1, std::byte{8}), RuntimeFault);
}

TEST_F(ReadsDoneAgain, AValueThatDoesNotComeAgainIsAFailure) {
  add(0);
  add(1);
  checks_.deliver(1, false);
  EXPECT_NO_THROW(checks_.forget(9));
  checks_.restart();
  add(1);
  EXPECT_NO_THROW(checks_.forget(9));
  EXPECT_THROW(checks_.forget(10), RuntimeFault);
}

TEST_F(ReadsDoneAgain, WhatFailedNeedNotComeAgain) {
  add(0);
  add(1);
  checks_.deliver(1, true);
  checks_.restart();
  EXPECT_NO_THROW(checks_.forget(10));
  EXPECT_FALSE(checks_.is_known(1));
}

TEST_F(ReadsDoneAgain, FailuresAreKnownUntilTheirPiecesAreForgotten) {
  checks_.note_failure(10, 3);
  EXPECT_TRUE(checks_.has_failed(10, 3));
  EXPECT_FALSE(checks_.has_failed(10, 2));
  checks_.restart();
  checks_.forget(9);
  EXPECT_TRUE(checks_.has_failed(10, 3));
  checks_.forget(10);
  EXPECT_FALSE(checks_.has_failed(10, 3));
}

}  // namespace
}  // namespace dtorch
