// Work that a kernel leaves in the background: it answers a read whenever it is done; no piece and no later read waits
// for it, and it ends with its node.
#include "ops/def/background.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

std::atomic<bool> was_told{false}, began_after_an_end{false};
std::atomic<Background*> nodes_background{nullptr};

// Passes the gate, then answers with two numbers; afterwards waits to be told that the job ends.
class Answers final : public BackgroundWork {
 public:
  explicit Answers(Background& background) : background_(background) { began_after_an_end = was_told.load(); }
  ~Answers() override {
    if (thread_.joinable()) thread_.join();
  }
  void start(uint64_t read) {
    nodes_background = &background_;
    thread_ = std::thread([this, read] {
      gate().pass();
      const int64_t values[] = {70, 71};
      std::vector<std::byte> packed(sizeof values);
      std::memcpy(packed.data(), values, sizeof values);
      background_.answer(read, {{0}, {2}}, std::move(packed));
      while (!background_.is_ending()) std::this_thread::yield();
      was_told = true;
    });
  }

 private:
  Background& background_;
  std::thread thread_;
};

void start_kernel(KernelContext& context) { this_nodes_background().work<Answers>().start(context.scalar(0).bits); }

const OperatorDef* start_op() {
  static const OperatorDef* registered = [] {
    static OperatorDef def{.name = "test.start_in_background", .kernel = start_kernel};
    OperatorRegistry::global().add(def);
    return &def;
  }();
  return registered;
}

class InBackground : public testing::Test {
 protected:
  InBackground() {
    start_op();
    gate().close();
    was_told = began_after_an_end = false;
  }
  ~InBackground() override { gate().open(); }
  const DeviceMesh mesh_ = init_device_mesh("cpu", {1});
  const TensorMeta* x_ = meta(mesh_, {2}, {Replicate()});
};

TEST_F(InBackground, TheAnswerComesWhenItIsThereAndNothingWaitsForIt) {
  ops();
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, x_}}).call(start_op(), {{0, x_}}, {}, {5}).urgent();
  cluster.wait_for(cluster.send(writer));
  gate().wait_for_visitor();
  PieceWriter& later = writer.call(ops().read, {{0, x_}}, {}, {6, -1}).urgent();
  cluster.wait_for(cluster.send(later));
  EXPECT_EQ(cluster.read(6, {2}), (std::map<int64_t, int64_t>{{0, 0}, {1, 1}}));
  EXPECT_EQ(cluster.num_boxes(5), 0u);
  gate().open();
  while (cluster.num_boxes(5) == 0) cluster.wait_for(cluster.send(writer.urgent()));
  EXPECT_EQ(cluster.read(5, {2}), (std::map<int64_t, int64_t>{{0, 70}, {1, 71}}));
  EXPECT_FALSE(was_told);
  EXPECT_EQ(cluster.end(0), std::vector<int>{0});
  EXPECT_TRUE(was_told);
}

TEST_F(InBackground, AtAnErrorsEndItIsToldAndAnswersNothing) {
  ops();
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, x_}}).call(start_op(), {{0, x_}}, {}, {5}).urgent();
  cluster.wait_for(cluster.send(writer));
  gate().wait_for_visitor();
  std::thread opens([] {
    while (!nodes_background.load()->is_ending()) std::this_thread::yield();
    gate().open();
  });
  EXPECT_EQ(cluster.end(1), std::vector<int>{1}) << "it waits for the work";
  opens.join();
  EXPECT_TRUE(was_told);
  EXPECT_EQ(cluster.num_boxes(5), 0u);
}

TEST_F(InBackground, WhatEndsSlowlyHoldsUpNoMessageOfTheNextEpochButItsLike) {
  ops();
  Cluster cluster({0, 1}, 1);  // node 0 passes on what node 1 gets
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, x_}}).call(start_op(), {{0, x_}}, {}, {5}).urgent();
  cluster.wait_for(cluster.send(writer));
  gate().wait_for_visitor();
  cluster.begin_epoch(2);
  PieceWriter anew;
  const TensorMeta* both = meta(init_device_mesh("cpu", {2}), {4}, {Shard(0)});
  anew.call(ops().iota, {}, {{0, both}}).call(ops().read, {{0, both}}, {}, {6, -1}).urgent();
  cluster.wait_for(cluster.send(anew));
  EXPECT_EQ(cluster.read(6, {4}), (std::map<int64_t, int64_t>{{0, 0}, {1, 1}, {2, 2}, {3, 3}}));
  EXPECT_FALSE(was_told);
  anew.call(ops().iota, {}, {{1, x_}}).call(start_op(), {{1, x_}}, {}, {7}).urgent();
  const Sequence started = cluster.send(anew);
  gate().open();
  cluster.wait_for(started);
  EXPECT_TRUE(began_after_an_end);
  while (cluster.num_boxes(7) == 0) cluster.wait_for(cluster.send(anew.urgent()));
  EXPECT_EQ(cluster.num_boxes(5), 0u) << "nobody waits for it any more";
  EXPECT_EQ(cluster.end(0), (std::vector<int>{0, 0}));
}

TEST_F(InBackground, IsStartedByKernelsOnly) { EXPECT_THROW(this_nodes_background(), InternalError); }

}  // namespace
}  // namespace dtorch::testing_worker
