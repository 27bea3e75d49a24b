// Client: synchronize, close, Graphs, random states, reads.
#include "runtime/client/client.h"

#include <gtest/gtest.h>

#include "runtime/client/graph_core.h"
#include "runtime/client/placement_error.h"
#include "tests/client/test_operators.h"

namespace dtorch::testing {
namespace {

using ClientRoomTest = ClientTest;

TEST_F(ClientRoomTest, KnowsItsDevicesAndNodes) {
  EXPECT_EQ(client_.devices(), 8);
  EXPECT_EQ(client_.num_nodes(), 2);
  EXPECT_EQ(client_.describe_nodes(), "fake");
}

TEST_F(ClientRoomTest, SynchronizeWaitsForEverythingRecorded) {
  runtime_->hold();
  Tensor a = make({4}, {.mesh = mesh_});
  for (int i = 0; i < 10; ++i) relu(a);
  runtime_->release();
  client_.synchronize();
  EXPECT_EQ(runtime_->operators().size(), 11u);
  EXPECT_EQ(runtime_->log().back().kind, RecordKind::kFlush);
}

TEST_F(ClientRoomTest, SynchronizeThrowsAFailureThatNobodyHasReadOnce) {
  make({4}, {.mesh = mesh_});
  {
    std::lock_guard lock(runtime_->link(0)->failure_mutex);
    runtime_->link(0)->unread_failure = std::make_exception_ptr(RuntimeFault("kernel failed"));
  }
  EXPECT_THROW(client_.synchronize(), RuntimeFault);
  client_.synchronize();
  client_.close();
}

TEST_F(ClientRoomTest, CloseThrowsAFailureThatNobodyHasReadAndEndsTheGraphs) {
  Tensor a = make({4}, {.mesh = mesh_});
  client_.new_graph();
  runtime_->link(0)->unread_failure = std::make_exception_ptr(RuntimeFault("kernel failed"));
  EXPECT_THROW(client_.close(), RuntimeFault);
  client_.close();
  EXPECT_THROW(relu(a), GraphError);
  EXPECT_THROW(client_.new_graph(), GraphError);
  EXPECT_EQ(runtime_->log().back().kind, RecordKind::kClose);
}

TEST_F(ClientRoomTest, EndsGraphsThatNobodyHoldsAnyMore) {
  for (int i = 0; i < 20; ++i) {
    GraphScope scope(client_.new_graph());
    EXPECT_EQ(relu(make({4}, {.mesh = mesh_})).to_host().num_elements(), 4);
  }
  int closed = 0;
  for (const LoggedRecord& record : runtime_->log()) closed += record.kind == RecordKind::kClose;
  EXPECT_EQ(closed, 19);
}

TEST_F(ClientRoomTest, KeepsRandomStatesOfGraphsApart) {
  manual_seed(7);
  EXPECT_EQ(client_.graph().core().next_random_call(), (RandomState{7, 0}));
  EXPECT_EQ(client_.graph().core().next_random_call(), (RandomState{7, 1}));
  const RandomState state = client_.graph().random_state();
  Graph second = client_.new_graph();
  {
    GraphScope scope(second);
    manual_seed(8);
  }
  EXPECT_EQ(second.random_state(), (RandomState{8, 0}));
  client_.graph().core().next_random_call();
  client_.graph().set_random_state(state);
  EXPECT_EQ(client_.graph().core().next_random_call(), (RandomState{7, 2}));
}

TEST_F(ClientRoomTest, ReadsEndTheSubgraphAndCarryTheirNumberAndDevice) {
  Tensor a = make({5, 2}, {.mesh = mesh_, .placements = {Shard(0), Replicate()}});
  EXPECT_EQ(a.to_host().num_elements(), 10);
  HostTensor part = a.to_host_local(2);
  EXPECT_EQ(part.shape(), (Shape{2, 2}));
  EXPECT_THROW(a.to_host_local(5), MeshError);
  const std::vector<LoggedRecord> log = runtime_->log();
  ASSERT_EQ(log.size(), 3u);
  ASSERT_EQ(log[1].scalars.size(), 2u);
  EXPECT_EQ(log[1].scalars[1].as_int(), -1);
  EXPECT_EQ(log[2].scalars[1].as_int(), 2);
  EXPECT_NE(log[1].scalars[0].as_int(), log[2].scalars[0].as_int());
}

TEST_F(ClientRoomTest, ReadsReduceAPartialFirst) {
  Tensor p = make({4}, {.mesh = mesh_, .placements = {Partial(), Shard(0)}}).requires_grad_();
  p.to_host();
  const std::vector<LoggedRecord> log = runtime_->log();
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[1].op, "redistribute");
  EXPECT_EQ(log[1].spec->outputs[0]->layout.placements(), (Placements{Replicate(), Shard(0)}));
  EXPECT_EQ(log[2].op, "read");
}

TEST_F(ClientRoomTest, ReadsOfAPartialAreRefusedWhenImplicitRedistributionIsOff) {
  set_implicit_redistribution(false);
  Tensor p = make({4}, {.mesh = mesh_, .placements = {Replicate(), Partial()}});
  try {
    p.to_host();
    FAIL() << "no error";
  } catch (const PlacementError& e) {
    EXPECT_EQ(e.op(), "to_host");
    EXPECT_EQ(e.axis(), "tp");
    ASSERT_EQ(e.fix().size(), 1u);
    p.redistribute(e.fix()[0].layout).to_host();
  }
  p.to_host_local(1);  // one part, as it is
  make({4}, {.mesh = mesh_, .placements = {Shard(0), Replicate()}}).to_host();
}

TEST_F(ClientRoomTest, ItemNeedsOneElement) {
  EXPECT_EQ(make({1, 1}, {.mesh = mesh_}).item<float>(), 0.0f);
  EXPECT_THROW(make({2}, {.mesh = mesh_}).item<float>(), ShapeError);
}

TEST_F(ClientRoomTest, ValuesMayOutliveTheClient) {
  Tensor kept;
  {
    auto runtime = std::make_shared<FakeRuntime>();
    Client client(runtime);
    kept = relu(make({4}, {.mesh = mesh_}));
  }
  EXPECT_EQ(kept.shape(), Shape{4});
  EXPECT_THROW(relu(kept), GraphError);
}

}  // namespace
}  // namespace dtorch::testing
