// Rows change owners along an axis, in numbers that only their owners know.
#include "runtime/comm/row_exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <optional>

#include "ops/def/row_exchange.h"
#include "runtime/base/error.h"
#include "runtime/comm/in_process.h"

namespace dtorch {
namespace {

constexpr int64_t kWidth = 3;

struct Got {
  std::vector<int32_t> rows;
  std::vector<int64_t> counts;
  std::string error;
  int64_t moved_bytes = 0;
};

// One exchange along axis 1 of a mesh over all nodes. Device d has count(d, p) rows for position p; element c of row i
// of them is number(d, p, i, c).
class RowExchangeTest : public testing::Test {
 protected:
  static int32_t number(int64_t device, int64_t position, int64_t row, int64_t column) {
    return static_cast<int32_t>(((device * 100 + position) * 100 + row) * 10 + column);
  }
  struct Case {
    DeviceMesh mesh;
    int32_t num_nodes = 1;
    std::function<int64_t(int64_t device, int64_t position)> count;
    std::map<int64_t, std::string> errors = {};
    int64_t wrong_sum = -1;  // this device's counts add up to more than its rows
    // Nodes that get no memory of more than a message: for the first they ask for (to send), or for the second (to
    // receive).
    std::map<int32_t, int> refused = {};
  };

  class NodeExchange final : public RowExchange {
   public:
    NodeExchange(RowExchangeTest& test, std::shared_ptr<const RowExchangePlan> plan, int refused)
        : RowExchange(std::move(plan), 1, 5), test_(test), refused_(refused) {}

   protected:
    bool sources_ready() override { return test_.ready_.load(); }
    Part source(int64_t device) override { return test_.source(device); }
    void deliver(int64_t device, Part part) override { test_.take(device, std::move(part)); }
    std::unique_ptr<std::byte[]> allocate(size_t bytes) override {
      if (bytes > kMostBytes && ++large_ == refused_) throw std::bad_alloc();
      return RowExchange::allocate(bytes);
    }
    bool wants_times() const override { return test_.wants_times_; }
    void on_round(const StageTimes& times) override {
      std::lock_guard lock(test_.mutex_);
      test_.rounds_.push_back(times);
    }

   private:
    RowExchangeTest& test_;
    const int refused_;  // which one of the large ones, from 1; 0: none
    int large_ = 0;
  };

  RowExchange::Part source(int64_t device);
  void take(int64_t device, RowExchange::Part part);
  void run(const Case& what);
  std::vector<int32_t> expected_rows(int64_t device) const;

  std::optional<Case> case_;
  std::atomic<bool> ready_{false};
  std::mutex mutex_;
  std::map<int64_t, Got> got_;
  int64_t bytes_ = 0, messages_ = 0;
  bool wants_times_ = false;
  std::vector<StageTimes> rounds_;  // of all nodes; under mutex_
};

RowExchange::Part RowExchangeTest::source(int64_t device) {
  if (const auto error = case_->errors.find(device); error != case_->errors.end()) return {{}, {}, error->second};
  const int64_t positions = case_->mesh.shape()[1];
  std::vector<int32_t> rows;
  RowExchange::Part part;
  part.counts = NativeTensor::empty({1, positions}, kInt64);
  for (int64_t p = 0; p < positions; ++p) {
    const int64_t count = case_->count(device, p);
    reinterpret_cast<int64_t*>(part.counts.data())[p] = count + (case_->wrong_sum == device ? 1 : 0);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < kWidth; ++c) rows.push_back(number(device, p, i, c));
    }
  }
  part.rows = NativeTensor::empty({static_cast<int64_t>(rows.size()) / kWidth, kWidth}, kInt32);
  std::copy(rows.begin(), rows.end(), reinterpret_cast<int32_t*>(part.rows.data()));
  return part;
}

void RowExchangeTest::take(int64_t device, RowExchange::Part part) {
  Got got;
  got.error = part.error;
  got.moved_bytes = part.moved_bytes;
  EXPECT_EQ(static_cast<bool>(part.rows), part.error.empty());
  if (part.rows) {
    EXPECT_EQ(part.rows.local_shape().back(), kWidth);
    const auto* rows = reinterpret_cast<const int32_t*>(part.rows.data());
    got.rows.assign(rows, rows + part.rows.num_elements());
    const auto* counts = reinterpret_cast<const int64_t*>(part.counts.data());
    got.counts.assign(counts, counts + part.counts.num_elements());
  }
  std::lock_guard lock(mutex_);
  EXPECT_TRUE(got_.emplace(device, std::move(got)).second) << "device " << device << " twice";
}

void RowExchangeTest::run(const Case& what) {
  case_ = what;
  ready_ = false;
  got_.clear();
  const DeviceBinding binding = block_binding(what.mesh.num_devices(), what.num_nodes);
  InProcessFabric fabric(what.num_nodes);
  std::exception_ptr failure;
  std::vector<std::unique_ptr<CommThread>> threads;
  std::vector<IntrusivePtr<CommTask>> tasks;
  for (int32_t node = 0; node < what.num_nodes; ++node) {
    threads.push_back(std::make_unique<CommThread>(fabric.make_transport(node), std::vector<ProgressSource*>{},
                                                   [&](std::exception_ptr error) {
                                                     std::lock_guard lock(mutex_);
                                                     failure = error;
                                                   }));
    tasks.emplace_back(new NodeExchange(*this, plan_row_exchange(what.mesh, 1, kWidth, kInt32, binding, node),
                                        what.refused.contains(node) ? what.refused.at(node) : 0));
    threads.back()->submit(tasks.back());
  }
  ready_ = true;
  for (size_t node = 0; node < threads.size(); ++node) threads[node]->wake(std::move(tasks[node]));
  for (auto& thread : threads) EXPECT_TRUE(thread->stop_within(std::chrono::seconds(60))) << "somebody waits";
  if (failure) std::rethrow_exception(failure);
  bytes_ = messages_ = 0;
  for (auto& thread : threads) {
    bytes_ += thread->transport()->bytes_sent();
    messages_ += thread->transport()->messages_sent();
  }
}

std::vector<int32_t> RowExchangeTest::expected_rows(int64_t device) const {
  const DeviceMesh& mesh = case_->mesh;
  Shape at = mesh.coordinate_of_index(mesh.index_of(device));
  const int64_t position = at[1];
  std::vector<int32_t> rows;
  for (at[1] = 0; at[1] < mesh.shape()[1]; ++at[1]) {
    const int64_t from = mesh.devices()[static_cast<size_t>(mesh.index_of_coordinate(at))];
    for (int64_t i = 0; i < case_->count(from, position); ++i) {
      for (int64_t c = 0; c < kWidth; ++c) rows.push_back(number(from, position, i, c));
    }
  }
  return rows;
}

TEST_F(RowExchangeTest, EveryDeviceGetsItsRowsInTheOrderOfPositions) {
  const DeviceMesh meshes[] = {init_device_mesh("cpu", {2, 3}), DeviceMesh("cpu", {1, 4}, {2, 0, 3, 1}),
                               DeviceMesh("cpu", {3, 2}, {5, 0, 1, 4, 2, 3})};
  for (const DeviceMesh& mesh : meshes) {
    for (int32_t num_nodes : {1, 2, 3}) {
      SCOPED_TRACE(mesh.str() + " on " + std::to_string(num_nodes) + " nodes");
      const Case what{mesh, num_nodes, [](int64_t device, int64_t position) { return (device * 3 + position) % 4; }};
      run(what);
      ASSERT_EQ(got_.size(), static_cast<size_t>(mesh.num_devices()));
      for (const auto& [device, got] : got_) {
        EXPECT_EQ(got.error, "");
        EXPECT_EQ(got.rows, expected_rows(device)) << "device " << device;
        int64_t sum = 0;
        for (int64_t count : got.counts) sum += count;
        EXPECT_EQ(sum * kWidth, static_cast<int64_t>(got.rows.size()));
      }
    }
  }
}

TEST_F(RowExchangeTest, OnlyRowsThatChangeNodesTravelAndNoneMeansNoMessage) {
  const DeviceMesh mesh = init_device_mesh("cpu", {1, 2});
  constexpr int64_t kFirst = 64 + 192;  // a message of counts
  run({mesh, 2, [](int64_t device, int64_t position) { return device == position ? 50 : 7; }});
  EXPECT_EQ(messages_, 4);
  EXPECT_EQ(bytes_, 2 * (kFirst + 7 * kWidth * 4));
  run({mesh, 2, [](int64_t device, int64_t position) { return device == position ? 50 : 0; }});
  EXPECT_EQ(messages_, 2);
  EXPECT_EQ(bytes_, 2 * kFirst);
  for (const auto& [device, got] : got_) EXPECT_EQ(got.rows, expected_rows(device));
}

TEST_F(RowExchangeTest, WhatMovedIsWhatCameFromOtherDevicesOfANodeToo) {
  for (int32_t num_nodes : {1, 2, 3}) {
    run({init_device_mesh("cpu", {1, 3}), num_nodes, [](int64_t device, int64_t) { return device + 1; }});
    for (const auto& [device, got] : got_) EXPECT_EQ(got.moved_bytes, (6 - (device + 1)) * kWidth * 4) << device;
  }
}

TEST_F(RowExchangeTest, RoundsAreToldWithTheirMessagesWhenSomebodyWantsThem) {
  const Case what{init_device_mesh("cpu", {1, 2}), 2,
                  [](int64_t device, int64_t position) { return device == position ? 50 : 7 * position; }};
  run(what);
  EXPECT_TRUE(rounds_.empty());
  wants_times_ = true;
  run(what);
  // Counts both ways; rows from device 0 to device 1 only.
  std::map<size_t, int64_t> rounds, sent_bytes, received_bytes;
  for (const StageTimes& round : rounds_) {
    ++rounds[round.stage];
    EXPECT_TRUE(round.has_messages());
    for (const auto& message : round.sent) sent_bytes[round.stage] += message.bytes;
    for (const auto& message : round.received) received_bytes[round.stage] += message.bytes;
    for (const auto* list : {&round.sent, &round.received}) {
      for (const auto& message : *list) {
        EXPECT_LE(round.begin_ns, message.at_ns);
        EXPECT_LE(message.at_ns, round.end_ns);
      }
    }
  }
  EXPECT_EQ(rounds, (std::map<size_t, int64_t>{{0, 2}, {1, 2}}));
  EXPECT_EQ(sent_bytes, (std::map<size_t, int64_t>{{0, 2 * 8}, {1, 7 * kWidth * 4}}));
  EXPECT_EQ(received_bytes, sent_bytes);
}

TEST_F(RowExchangeTest, AFailedSourceFailsItsLineAndNobodyWaits) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 3});
  for (int32_t num_nodes : {1, 2, 6}) {
    SCOPED_TRACE(num_nodes);
    run({mesh, num_nodes, [](int64_t, int64_t) { return 2; }, {{1, "kernel exploded"}}});
    ASSERT_EQ(got_.size(), 6U);
    for (int64_t device : {0, 1, 2}) EXPECT_EQ(got_[device].error, "kernel exploded") << device;
    for (int64_t device : {3, 4, 5}) {
      EXPECT_EQ(got_[device].error, "") << device;
      EXPECT_EQ(got_[device].rows, expected_rows(device)) << device;
    }
  }
}

constexpr int64_t kManyRows = 200'000;  // 2.4 MB

TEST_F(RowExchangeTest, ManyRowsTravelInSeveralMessages) {
  const DeviceMesh mesh = init_device_mesh("cpu", {1, 2});
  run({mesh, 2, [](int64_t device, int64_t position) { return device == position ? 0 : kManyRows + device; }});
  EXPECT_EQ(messages_, 2 * (1 + 3));
  for (const auto& [device, got] : got_) {
    EXPECT_EQ(got.error, "");
    EXPECT_EQ(got.rows, expected_rows(device)) << "device " << device;
  }
}

// Everybody sends and gets many rows: 0 -> 1 -> 2 -> 0; a few go the other way.
TEST_F(RowExchangeTest, MemoryThatIsShortFailsTheDevicesThatWouldHaveHadTheRows) {
  const DeviceMesh mesh = init_device_mesh("cpu", {1, 3});
  const auto round = [](int64_t device, int64_t position) { return (device + 1) % 3 == position ? kManyRows : 2; };
  for (const auto& [asked, failed] : {std::pair(1, 2), std::pair(2, 1)}) {  // to send: device 2; to receive: its own
    SCOPED_TRACE(asked);
    run({mesh, 3, round, {}, -1, {{1, asked}}});
    ASSERT_EQ(got_.size(), 3U);
    for (const auto& [device, got] : got_) {
      if (device == failed) {
        EXPECT_NE(got.error.find("out of memory: 2400000 bytes"), std::string::npos) << got.error;
      } else {
        EXPECT_EQ(got.error, "");
        EXPECT_EQ(got.rows, expected_rows(device)) << "device " << device;
      }
    }
  }
}

TEST_F(RowExchangeTest, CountsThatDoNotFitTheRowsAreAFailureOfTheirSource) {
  const DeviceMesh mesh = init_device_mesh("cpu", {1, 2});
  run({mesh, 2, [](int64_t, int64_t) { return 2; }, {}, 1});
  for (const auto& [device, got] : got_) EXPECT_NE(got.error.find("add up to 6"), std::string::npos) << got.error;
}

TEST(ExchangeSpec, WhatIsNoExchangeIsADecodeError) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 3});
  const auto meta = [&](const Shape& shape, const Placements& placements, DType dtype = kFloat32) {
    return intern_meta(shape, dtype, Layout(mesh, placements, shape.ndim()));
  };
  const TensorMeta *home = meta({3, 8, 5}, {Shard(1), Shard(1)}), *away = meta({3, 8, 5}, {Shard(1), Shard(0)}),
                   *counts = meta({6, 3}, {Shard(0), Shard(0)}, kInt64);
  const auto axis_of = [](std::vector<const TensorMeta*> inputs, std::vector<const TensorMeta*> outputs) {
    OperatorSpec spec;
    spec.inputs = std::move(inputs);
    spec.outputs = std::move(outputs);
    return exchange_axis(spec);
  };
  EXPECT_EQ(axis_of({home, counts}, {away, counts}), 1);
  EXPECT_EQ(axis_of({away, counts}, {home, counts}), 1);
  EXPECT_THROW(axis_of({home}, {away}), DecodeError);
  EXPECT_THROW(axis_of({home, counts}, {home, counts}), DecodeError);
  EXPECT_THROW(axis_of({home, counts}, {meta({3, 8, 5}, {Shard(0), Shard(0)}), counts}), DecodeError);
  EXPECT_THROW(axis_of({home, counts}, {meta({3, 8, 5}, {Shard(1), Replicate()}), counts}), DecodeError);
  EXPECT_THROW(axis_of({home, counts}, {meta({3, 8, 5}, {Shard(1), Shard(0)}, kFloat64), counts}), DecodeError);
  EXPECT_THROW(axis_of({home, home}, {away, home}), DecodeError);
  const TensorMeta* whole_counts = meta({6, 3}, {Shard(0), Replicate()}, kInt64);
  EXPECT_THROW(axis_of({home, whole_counts}, {away, whole_counts}), DecodeError);
  const TensorMeta *more = meta({4, 8, 5}, {Shard(1), Shard(1)}), *more_away = meta({4, 8, 5}, {Shard(1), Shard(0)});
  EXPECT_THROW(axis_of({more, counts}, {more_away, counts}), DecodeError);
}

}  // namespace
}  // namespace dtorch
