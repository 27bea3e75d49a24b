// What was read before a node was lost is compared with what comes after.
#include "runtime/controller/read_checks.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

ReadChecks::ReadBox box_of(int64_t offset, uint8_t value) {
  return {Box{{offset}, {4}}, std::make_shared<const Bytes>(4, std::byte{value})};
}

TEST(ReadChecks, BoxesComeWhenAllAreThere) {
  ReadChecks checks;
  checks.enter(1, 10);
  EXPECT_TRUE(checks.add_box(1, box_of(0, 1), 8).empty());
  EXPECT_EQ(checks.add_box(1, box_of(4, 2), 8).size(), 2u);
}

TEST(ReadChecks, WhatWasIncompleteComesAnew) {
  ReadChecks checks;
  checks.enter(1, 10);
  EXPECT_TRUE(checks.add_box(1, box_of(0, 1), 8).empty());
  checks.restart();
  EXPECT_TRUE(checks.add_box(1, box_of(0, 1), 8).empty());
  EXPECT_EQ(checks.add_box(1, box_of(4, 2), 8).size(), 2u);
}

TEST(ReadChecks, TheSameInAnotherOrderIsTheSame) {
  ReadChecks checks;
  checks.enter(1, 10);
  checks.add_box(1, box_of(0, 1), 8);
  checks.add_box(1, box_of(4, 2), 8);
  checks.deliver(1, false);
  checks.restart();
  EXPECT_TRUE(checks.add_box(1, box_of(4, 2), 0).empty());
  EXPECT_TRUE(checks.add_box(1, box_of(0, 1), 0).empty());
}

TEST(ReadChecks, AnotherValueIsAFailure) {
  ReadChecks checks;
  checks.enter(1, 10);
  checks.add_box(1, box_of(0, 1), 4);
  checks.deliver(1, false);
  checks.restart();
  EXPECT_THROW(checks.add_box(1, box_of(0, 2), 0), RuntimeFault);
  // The same bytes at other places are another value as well.
  checks.enter(2, 11);
  checks.add_box(2, box_of(0, 1), 8);
  checks.add_box(2, box_of(4, 2), 8);
  checks.deliver(2, false);
  checks.restart();
  checks.add_box(2, box_of(0, 2), 0);
  EXPECT_THROW(checks.add_box(2, box_of(4, 1), 0), RuntimeFault);
}

TEST(ReadChecks, FailedAndForgottenReadsArentCompared) {
  ReadChecks checks;
  checks.enter(1, 10);
  checks.deliver(1, true);
  checks.enter(2, 10);
  checks.add_box(2, box_of(0, 1), 4);
  EXPECT_FALSE(checks.is_delivered(2));
  checks.deliver(2, false);
  EXPECT_TRUE(checks.is_delivered(2));
  checks.restart();
  EXPECT_NO_THROW(checks.add_box(1, box_of(0, 1), 0));
  EXPECT_NO_THROW(checks.add_box(2, box_of(0, 1), 0));
  checks.forget(10);
  EXPECT_FALSE(checks.is_known(2));
  EXPECT_NO_THROW(checks.add_box(2, box_of(0, 9), 0));
}

}  // namespace
}  // namespace dtorch
