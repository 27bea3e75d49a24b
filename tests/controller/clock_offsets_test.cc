// Clocks that differ: what a question and its answer tell of them, and times in between.
#include <gtest/gtest.h>

#include "runtime/controller/clock_offsets.h"
#include "tests/controller/fake_cluster.h"

namespace dtorch {
namespace {

Answer answered(int64_t asked_ns, int64_t clock_ns, int64_t received_ns, uint64_t machine = 2) {
  return {.clock_ns = clock_ns, .machine = machine, .asked_ns = asked_ns, .received_ns = received_ns};
}

TEST(ClockOffset, IsTheDifferenceToTheMiddleOfTheQuestionWithHalfItsTimeAsError) {
  const ClockOffset offset = clock_offset(answered(1000, 51100, 1200), 1);
  EXPECT_EQ(offset.at_ns, 1100);
  EXPECT_EQ(offset.offset_ns, 50000);
  EXPECT_EQ(offset.error_ns, 100);
}

TEST(ClockOffset, OfANodeOnThisMachineIsNothingUnlessThatIsImpossible) {
  const ClockOffset same = clock_offset(answered(1000, 1030, 1200, 1), 1);
  EXPECT_EQ(same.offset_ns, 0);
  EXPECT_EQ(same.error_ns, 0);
  // Another time namespace: the same kernel, another clock.
  EXPECT_EQ(clock_offset(answered(1000, 51100, 1200, 1), 1).offset_ns, 50000);
  // A machine that can't be told is no machine that one could share.
  EXPECT_EQ(clock_offset(answered(1000, 1130, 1200, 0), 0).offset_ns, 30);
}

TEST(ClockOffsets, KeepTheBestMeasurementAndChangeEvenlyBetweenStartAndEnd) {
  ClockOffsets clocks(2);
  clocks.add(1, {.at_ns = 0, .offset_ns = 900, .error_ns = 500}, false);
  clocks.add(1, {.at_ns = 0, .offset_ns = 1000, .error_ns = 10}, false);
  clocks.add(1, {.at_ns = 1000000, .offset_ns = 3000, .error_ns = 20}, true);
  EXPECT_EQ(clocks.to_rank_0(1, 1000), 0);
  EXPECT_EQ(clocks.to_rank_0(1, 1003000), 1000000);
  EXPECT_NEAR(static_cast<double>(clocks.to_rank_0(1, 502000)), 500000, 2);
  EXPECT_EQ(clocks.to_rank_0(1, 2003000), 2000000) << "as at the end from then on";
  EXPECT_EQ(clocks.to_rank_0(0, 77), 77) << "a node that was never measured";
  EXPECT_EQ(clocks.error_ns(), 20);
}

TEST(ClockOffsets, AreMeasuredOfNodesWhoseClocksDiffer) {
  // Node 1 is an hour ahead.
  constexpr int64_t kHour = int64_t{3600} * 1000000000;
  const auto answers = [](int32_t node) {
    Answer answer;
    answer.clock_ns = trace_clock_ns() + (node == 1 ? kHour : 0);
    return answer;
  };
  InProcessFabric fabric(2);
  FakeNode first(fabric, 0, {.answers = answers}), second(fabric, 1, {.answers = answers});
  Inspection inspection(fabric.control(kController), 2);
  std::thread inbox([&] {
    while (std::optional<Envelope> envelope = fabric.control(kController).inbox().pop()) {
      if (envelope->message.kind == MessageKind::kAnswer)
        inspection.on_answer(envelope->from, decode_answer(envelope->message));
    }
  });
  ClockOffsets clocks(2);
  clocks.measure(inspection);
  const int64_t now = trace_clock_ns();
  EXPECT_LE(std::abs(clocks.to_rank_0(0, now) - now), clocks.error_ns());
  EXPECT_LE(std::abs(clocks.to_rank_0(1, now + kHour) - now), clocks.error_ns());
  EXPECT_LT(clocks.error_ns(), 1000000000);
  fabric.control(kController).inbox().close();
  inbox.join();
}

}  // namespace
}  // namespace dtorch
