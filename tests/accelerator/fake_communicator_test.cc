// The fake communicator: what collectives give, and what shows when ranks don't do the same.
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <thread>

#include "runtime/accelerator/fake/fake_faults.h"
#include "runtime/accelerator/fake/fake_library.h"
#include "tests/accelerator/setup.h"

namespace dtorch::fake {
namespace {

constexpr int32_t kRanks = 3;

class FakeCommunicator : public ::testing::Test {
 protected:
  void SetUp() override { join(30); }
  void TearDown() override {
    plant({});
    for (auto& communicator : communicators_) communicator->cancel();
    streams_.clear();
  }

  // All ranks, with an end to their patience.
  void join(double deadline_s) {
    streams_.clear();
    library_ = make_library(setup_for_tests());
    factory_ = library_->communicators();
    const CommunicatorFactory::Id id = factory_->new_id();
    communicators_.clear();
    communicators_.resize(kRanks);
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        communicators_[static_cast<size_t>(rank)] =
            factory_->join(id, rank, kRanks, library_->accelerator(rank), {deadline_s, [] { return false; }});
      });
      streams_.push_back(library_->accelerator(rank).new_stream(StreamKind::kCommunication));
      streams_.back()->set_failure_handler([this](const StreamMark&, const std::string& what) {
        std::lock_guard lock(mutex_);
        failures_.push_back(what);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  NativeTensor on_device(int32_t rank, const std::vector<float>& values) {
    const Shape shape{static_cast<int64_t>(values.size())};
    NativeTensor host = library_->accelerator(rank).allocate_host(shape, kFloat32);
    std::memcpy(host.data(), values.data(), values.size() * sizeof(float));
    NativeTensor value = stream(rank).allocate(shape, kFloat32, nullptr);
    stream(rank).copy(host, value);
    return value;
  }
  std::vector<float> on_host(int32_t rank, const NativeTensor& value) {
    NativeTensor host = library_->accelerator(rank).allocate_host(value.local_shape(), kFloat32);
    stream(rank).copy(value, host);
    stream(rank).synchronize();
    std::vector<float> values(static_cast<size_t>(value.num_elements()));
    std::memcpy(values.data(), host.data(), values.size() * sizeof(float));
    return values;
  }
  DeviceStream& stream(int32_t rank) { return *streams_[static_cast<size_t>(rank)]; }
  Communicator& communicator(int32_t rank) { return *communicators_[static_cast<size_t>(rank)]; }
  void wait_for_all() {
    for (int32_t rank = 0; rank < kRanks; ++rank) stream(rank).synchronize();
  }
  std::vector<std::string> failures() {
    std::lock_guard lock(mutex_);
    return failures_;
  }
  // In place, on every rank's value.
  void all_reduce(int32_t rank, const NativeTensor& value, int64_t count) {
    communicator(rank).all_reduce(stream(rank), value.data(), value.data(), count, kFloat32, ReduceOp::kSum);
  }

  std::mutex mutex_;
  std::vector<std::string> failures_;  // under mutex_
  std::shared_ptr<AcceleratorLibrary> library_;
  CommunicatorFactory* factory_ = nullptr;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<DeviceStream>> streams_;
};

TEST_F(FakeCommunicator, ReducesGathersScattersAndBroadcasts) {
  std::vector<NativeTensor> sums, gathered, scattered, sent;
  std::vector<NativeTensor> all;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const auto value = static_cast<float>(rank + 1);
    sums.push_back(on_device(rank, {value, 10 * value}));
    all_reduce(rank, sums.back(), 2);
    gathered.push_back(on_device(rank, {0, 0, 0}));
    all.push_back(on_device(rank, {value}));
    communicator(rank).all_gather(stream(rank), all.back().data(), gathered.back().data(), 1, kFloat32);
    all.push_back(on_device(rank, {value, 2 * value, 3 * value}));
    scattered.push_back(on_device(rank, {0}));
    communicator(rank).reduce_scatter(stream(rank), all.back().data(), scattered.back().data(), 1, kFloat32,
                                      ReduceOp::kAvg);
    sent.push_back(on_device(rank, {value}));
    communicator(rank).broadcast(stream(rank), sent.back().data(), sent.back().data(), 1, kFloat32, 2);
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<size_t>(rank);
    EXPECT_EQ(on_host(rank, sums[at]), (std::vector<float>{6, 60}));
    EXPECT_EQ(on_host(rank, gathered[at]), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(on_host(rank, scattered[at]), (std::vector<float>{2.0f * static_cast<float>(rank + 1)}));
    EXPECT_EQ(on_host(rank, sent[at]), (std::vector<float>{3}));
  }
  EXPECT_TRUE(failures().empty());
}

TEST_F(FakeCommunicator, SendsInGroups) {
  std::vector<NativeTensor> values, received;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    values.push_back(on_device(rank, {static_cast<float>(rank)}));
    received.push_back(on_device(rank, {-1}));
    factory_->group_begin();
    communicator(rank).send(stream(rank), values.back().data(), 1, kFloat32, (rank + 1) % kRanks);
    communicator(rank).receive(stream(rank), received.back().data(), 1, kFloat32, (rank + 2) % kRanks);
    factory_->group_end();
  }
  for (int32_t rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(on_host(rank, received[static_cast<size_t>(rank)])[0], static_cast<float>((rank + 2) % kRanks));
}

TEST_F(FakeCommunicator, UnequalSizesFail) {
  std::vector<NativeTensor> values;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    values.push_back(on_device(rank, {1, 2}));
    all_reduce(rank, values.back(), rank == 1 ? 1 : 2);
  }
  wait_for_all();
  ASSERT_EQ(failures().size(), static_cast<size_t>(kRanks));
  EXPECT_NE(failures()[0].find("disagree"), std::string::npos) << failures()[0];
  EXPECT_NE(failures()[0].find("all_reduce of 1 float32"), std::string::npos) << failures()[0];
}

TEST_F(FakeCommunicator, OtherOrdersStandStillAndTheReportSaysWhoWaitsForWhat) {
  join(0.2);
  std::vector<NativeTensor> values;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    values.push_back(on_device(rank, {1, 2, 3}));
    const auto gather = [&] {
      communicator(rank).all_gather(stream(rank), values.back().data(), values.back().data(), 1, kFloat32);
    };
    if (rank == 2) gather();
    all_reduce(rank, values.back(), 3);
    if (rank != 2) gather();
  }
  wait_for_all();
  ASSERT_EQ(failures().size(), static_cast<size_t>(2 * kRanks));  // of both collectives
  EXPECT_EQ(failures()[0],
            "a collective stands still: rank 0 waits in all_reduce of 3 float32 #0; rank 1 waits in all_reduce of 3 "
            "float32 #0; rank 2 waits in all_gather of 1 float32 #0");
}

TEST_F(FakeCommunicator, ASwappedOrderCanBePlanted) {
  join(0.2);
  Faults swapped;
  swapped.swap_every = 2;
  plant(swapped);
  std::vector<NativeTensor> values;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    values.push_back(on_device(rank, {1, 2, 3}));
    for (int i = 0; i < 4; ++i) all_reduce(rank, values.back(), 1 + i % 2);
  }
  wait_for_all();
  EXPECT_FALSE(failures().empty());
}

TEST_F(FakeCommunicator, WhoIsCancelledGoesOn) {
  const NativeTensor value = on_device(0, {1});
  all_reduce(0, value, 1);  // the others never come
  communicator(0).cancel();
  stream(0).synchronize();
}

TEST_F(FakeCommunicator, ARankThatNeverJoinsIsSaid) {
  const CommunicatorFactory::Id id = factory_->new_id();
  EXPECT_THROW(factory_->join(id, 0, 2, library_->accelerator(0), {0.05, [] { return false; }}), RuntimeFault);
  EXPECT_THROW(factory_->join(id, 0, 3, library_->accelerator(0), {0, [] { return true; }}), RuntimeFault);
}

}  // namespace
}  // namespace dtorch::fake
