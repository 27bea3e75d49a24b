// Parts of snapshots that come from other nodes, which may be ahead of this one.
#include "runtime/worker/snapshot_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/comm/in_process.h"
#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

constexpr GraphId kGraph = 7;
constexpr OperandId kSlot = 3;

// Node 0 of three: device 0 was node 1's and device 1 node 2's, which is lost, so that node 0 has it now. Both devices
// hold the same, so that it comes from node 1.
class Restoring : public testing::Test {
 protected:
  Restoring() {
    order_.values = {{kGraph, kSlot, meta(init_device_mesh("cpu", {2}), {2}, {Replicate()}), false}};
    order_.places = {{1, 2}, {kNoBuddy, 2, 1}, 1};
    store_.begin_epoch(2);
  }
  SharedBytes payload_for(SnapshotPart& part) const {
    const NativeTensor value = NativeTensor::empty({2}, kInt64);
    const int64_t numbers[] = {5, 6};
    std::memcpy(value.data(), numbers, sizeof numbers);
    return pack_part(value, part);
  }
  void take_part(int64_t device) {
    SnapshotPart part{.epoch = 2, .snapshot = 4, .owner = 0, .device = device, .graph = kGraph, .slot = kSlot};
    const SharedBytes payload = payload_for(part);
    store_.take_part(std::move(part), payload);
  }
  IntrusivePtr<Arrival> restore() {
    const auto arrival_for = [&](int64_t) {
      return make_intrusive<Arrival>(std::make_shared<Parker>(), memory_, Place{}, 0);
    };
    const std::vector<KeptPart> parts = store_.restore(order_, {1}, {1, 0}, {true, true, false}, arrival_for);
    return parts.at(0).at(0).pending;
  }
  static std::vector<int64_t> numbers_of(const NativeTensor& value) {
    std::vector<int64_t> numbers(2);
    std::memcpy(numbers.data(), value.data(), 16);
    return numbers;
  }

  InProcessFabric fabric_{3};
  MemoryCounter& memory_ = *new_memory_counter();
  SnapshotOrder order_{.epoch = 2, .snapshot = 4, .action = SnapshotAction::kRestore};
  SnapshotStore store_{fabric_.control(0), 0};
};

TEST_F(Restoring, APartThatComesBeforeTheOrderToRestoreWaitsForIt) {
  take_part(1);
  const IntrusivePtr<Arrival> arrival = restore();
  ASSERT_TRUE(arrival->event.is_set());
  EXPECT_EQ(numbers_of(arrival->value), (std::vector<int64_t>{5, 6}));
}

TEST_F(Restoring, APartThatComesAfterItSettlesWhatWaits) {
  const IntrusivePtr<Arrival> arrival = restore();
  EXPECT_FALSE(arrival->event.is_set());
  take_part(1);
  ASSERT_TRUE(arrival->event.is_set());
  EXPECT_EQ(numbers_of(arrival->value), (std::vector<int64_t>{5, 6}));
}

TEST_F(Restoring, APartThatNobodyWaitsForIsRefused) {
  take_part(0);
  EXPECT_THROW(restore(), DecodeError);
  EXPECT_THROW(take_part(0), DecodeError);
}

TEST_F(Restoring, APartOfAnEpochThatHasEndedIsForgotten) {
  take_part(0);
  store_.begin_epoch(3);
  order_.epoch = 3;
  EXPECT_FALSE(restore()->event.is_set());
}

}  // namespace
}  // namespace dtorch::testing_worker
