// What plans cost: bytes against a ring's, no detours, balanced senders, and what explain() says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "mesh/redistribute_plan.h"

namespace dtorch {
namespace {

RedistributePlan plan_of(const DeviceMesh& mesh, const Shape& shape, const Layout& from, const Layout& to) {
  EXPECT_EQ(from.mesh(), mesh);
  return make_redistribute_plan(intern_meta(shape, kFloat32, from), intern_meta(shape, kFloat32, to));
}

int64_t bytes_of(const DeviceMesh& mesh, const Shape& shape, const Placements& from, const Placements& to) {
  const Layout a(mesh, from, shape.ndim());
  const Layout b(mesh, to, shape.ndim());
  return plan_of(mesh, shape, a, b).bytes_moved(block_binding(mesh.num_devices(), 1));
}

std::map<int64_t, int64_t> elements_sent(const Stage& stage, const DeviceBinding& binding) {
  std::map<int64_t, int64_t> sent;
  for (int64_t device : stage.to->layout.mesh().devices()) {
    for (const PlanPiece& piece : pieces_for(stage, device, binding)) {
      for (int64_t source : piece.sources) {
        if (source != device) sent[source] += piece.box.num_elements();
      }
    }
  }
  return sent;
}

TEST(RedistributeCost, GathersReducesAndScattersAtARingsBytes) {
  for (int64_t n : {2, 3, 4, 8}) {
    const DeviceMesh mesh = init_device_mesh("cpu", {n});
    const Shape shape{24, 24};
    const int64_t bytes = 24 * 24 * 4;
    EXPECT_EQ(bytes_of(mesh, shape, {Shard(0)}, {Replicate()}), (n - 1) * bytes);
    EXPECT_EQ(bytes_of(mesh, shape, {Partial()}, {Replicate()}), 2 * (n - 1) * bytes);
    EXPECT_EQ(bytes_of(mesh, shape, {Partial()}, {Shard(1)}), (n - 1) * bytes);
    EXPECT_EQ(bytes_of(mesh, shape, {Shard(1)}, {Shard(0)}), (n - 1) * bytes / n);
    EXPECT_EQ(bytes_of(mesh, shape, {Replicate()}, {Shard(0)}), 0);
    EXPECT_EQ(bytes_of(mesh, shape, {Replicate()}, {Partial()}), 0);
  }
}

TEST(RedistributeCost, ReducesOverTwoAxesAtARingsBytes) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 4});
  const int64_t bytes = 16 * 8 * 4;
  EXPECT_EQ(bytes_of(mesh, {16, 8}, {Partial(), Partial()}, {Replicate(), Replicate()}), 2 * 7 * bytes);
  EXPECT_EQ(bytes_of(mesh, {16, 8}, {Partial(), Partial()}, {Shard(0), Shard(0)}), 7 * bytes);
  // Only axis 1 is reduced: 3/4 twice for each of the 8 devices, on a half of the tensor.
  EXPECT_EQ(bytes_of(mesh, {16, 8}, {Shard(0), Partial()}, {Shard(0), Replicate()}), 2 * 6 * bytes / 2);
}

TEST(RedistributeCost, SplitsTheLongestDimWhenAShortOneWouldBeUneven) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  EXPECT_EQ(bytes_of(mesh, {1, 64}, {Partial()}, {Replicate()}), 2 * 3 * 64 * 4);
}

TEST(RedistributeCost, SwapsShardsBetweenAxesWithoutGatheringEverything) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4, 4});
  const Shape shape{16, 16};
  const Layout from(mesh, {Shard(0), Shard(1)}, 2);
  const Layout to(mesh, {Shard(1), Shard(0)}, 2);
  const RedistributePlan plan = plan_of(mesh, shape, from, to);
  EXPECT_EQ(plan.stages.size(), 1u);
  EXPECT_LE(plan.bytes_moved(block_binding(16, 1)), shape.num_elements() * 4);
}

TEST(RedistributeCost, TakesOneStageFromPartialToShard) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const Layout from(mesh, {Partial(), Shard(0)}, 2);
  const Layout to = from.with_placements({Shard(0), Shard(0)}, 2);
  EXPECT_EQ(to.order_str(), "{tp, dp}");
  const RedistributePlan plan = plan_of(mesh, {10, 3}, from, to);
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_EQ(plan.stages[0].folded_axes, (AxisList{0}));
  EXPECT_EQ(plan.stages[0].reduce, kSum);
  EXPECT_EQ(plan.stages[0].divisor, 1);
}

TEST(RedistributeCost, FoldsAnAverageAsASumWithADivisor) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 3});
  const Layout from(mesh, {Partial(kAvg), Partial(kAvg)}, 1);
  const RedistributePlan plan = plan_of(mesh, {12}, from, Layout(mesh, {Shard(0), Shard(0)}, 1));
  ASSERT_EQ(plan.stages.size(), 1u);
  EXPECT_EQ(plan.stages[0].reduce, kSum);
  EXPECT_EQ(plan.stages[0].divisor, 6);
}

TEST(RedistributeCost, SaysWhichPlansAreLocal) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
  const auto kind = [&](const Placements& from, const Placements& to) {
    return plan_of(mesh, {8, 6}, Layout(mesh, from, 2), Layout(mesh, to, 2)).kind;
  };
  EXPECT_EQ(kind({Shard(0), Replicate()}, {Shard(0), Replicate()}), PlanKind::kNothing);
  EXPECT_EQ(kind({Replicate(), Replicate()}, {Shard(0), Shard(1)}), PlanKind::kLocal);
  EXPECT_EQ(kind({Shard(0), Replicate()}, {Shard(0), Shard(0)}), PlanKind::kLocal);
  EXPECT_EQ(kind({Shard(0), Replicate()}, {Shard(0), Partial()}), PlanKind::kLocal);
  EXPECT_EQ(kind({Replicate(), Shard(0)}, {Shard(0), Shard(0)}), PlanKind::kTransfer);
  EXPECT_EQ(kind({Shard(0), Replicate()}, {Partial(), Replicate()}), PlanKind::kTransfer);
}

TEST(RedistributeCost, IsLocalBetweenMeshesThatHoldTheSameParts) {
  const DeviceMesh flat = init_device_mesh("cpu", {4});
  const DeviceMesh square = init_device_mesh("cpu", {2, 2});
  const TensorMeta* from = intern_meta({8}, kFloat32, Layout(flat, {Shard(0)}, 1));
  const TensorMeta* to = intern_meta({8}, kFloat32, Layout(square, {Shard(0), Shard(0)}, 1));
  EXPECT_EQ(make_redistribute_plan(from, to).kind, PlanKind::kLocal);
}

TEST(RedistributeCost, SpreadsTheLoadAmongReplicas) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 4});
  const DeviceBinding one_each = block_binding(16, 16);
  const Layout from(mesh, {Shard(0), Replicate()}, 1);
  const RedistributePlan inside = plan_of(mesh, {64}, from, Layout(mesh, {Replicate(), Replicate()}, 1));
  for (const auto& [device, elements] : elements_sent(inside.stages.at(0), one_each)) EXPECT_EQ(elements, 32) << device;

  const DeviceMesh other("cpu", {8}, {8, 9, 10, 11, 12, 13, 14, 15});
  for (const Placements& placements : {Placements{Replicate()}, Placements{Shard(0)}}) {
    const RedistributePlan across = plan_of(mesh, {64}, from, Layout(other, placements, 1));
    const std::map<int64_t, int64_t> sent = elements_sent(across.stages.at(0), one_each);
    EXPECT_EQ(sent.size(), 8u);
    for (const auto& [device, elements] : sent) EXPECT_EQ(elements, placements[0].is_shard() ? 8 : 64) << device;
  }
}

TEST(RedistributeCost, PrefersAHolderOnTheSameNode) {
  const DeviceMesh source("cpu", {2, 2}, {0, 1, 4, 5});
  const DeviceMesh target("cpu", {2}, {2, 6});
  const TensorMeta* from = intern_meta({8}, kFloat32, Layout(source, {Replicate(), Shard(0)}, 1));
  const TensorMeta* to = intern_meta({8}, kFloat32, Layout(target, {Replicate()}, 1));
  const RedistributePlan plan = make_redistribute_plan(from, to);
  const DeviceBinding two_nodes = block_binding(8, 2);
  for (int64_t device : {2, 6}) {
    for (const PlanPiece& piece : pieces_for(plan.stages.at(0), device, two_nodes)) {
      EXPECT_EQ(two_nodes.node_of(piece.sources.at(0)), two_nodes.node_of(device));
    }
  }
}

TEST(RedistributeCost, ListsPiecesOfAnUnevenGather) {
  const DeviceMesh mesh = init_device_mesh("cpu", {3});
  const RedistributePlan plan = plan_of(mesh, {5}, Layout(mesh, {Shard(0)}, 1), Layout(mesh, {Replicate()}, 1));
  const std::vector<PlanPiece> pieces = pieces_for(plan.stages.at(0), 1, block_binding(3, 1));
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].box, (Box{{0}, {2}}));
  EXPECT_EQ(pieces[2].box, (Box{{4}, {1}}));
  EXPECT_EQ(pieces[2].sources, (std::vector<int64_t>{2}));
}

TEST(RedistributeCost, KeepsOffsetsIn64Bits) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2});
  const int64_t n = int64_t{3} << 32;
  const RedistributePlan plan = plan_of(mesh, {n}, Layout(mesh, {Shard(0)}, 1), Layout(mesh, {Replicate()}, 1));
  EXPECT_EQ(plan.bytes_moved(block_binding(2, 1)), n * 4);
  EXPECT_EQ(pieces_for(plan.stages.at(0), 0, block_binding(2, 1)).at(1).box, (Box{{n / 2}, {n / 2}}));
}

TEST(RedistributeCost, KeepsOffsetsIn64BitsOnTwoAxesAndBetweenMeshes) {
  const int64_t n = int64_t{5} << 32;
  const DeviceMesh square = init_device_mesh("cpu", {2, 2});
  const DeviceMesh other("cpu", {3}, {1, 4, 5});
  const TensorMeta* from = intern_meta({3, n}, kBFloat16, Layout(square, {Shard(1), Shard(1)}, 2, AxisList{1, 0}));
  const TensorMeta* to = intern_meta({3, n}, kBFloat16, Layout(other, {Shard(0)}, 2));
  const RedistributePlan plan = make_redistribute_plan(from, to);
  // Device 1 keeps a quarter of the row that it gets; the other two get a row each.
  EXPECT_EQ(plan.bytes_moved(block_binding(6, 1)), 2 * (3 * n - n / 4));
  const std::vector<PlanPiece> pieces = pieces_for(plan.stages.at(0), 5, block_binding(6, 1));
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[3].box, (Box{{2, n / 4 * 3}, {1, n / 4}}));
  EXPECT_EQ(pieces[1].sources, (std::vector<int64_t>{2}));
}

TEST(RedistributeCost, ExplainsAPairOfLayoutsWithoutATensor) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"tp"});
  const std::string text = explain_redistribute(Layout(mesh, {Shard(0)}, 2), Layout(mesh, {Shard(1)}, 2), {4, 8});
  EXPECT_EQ(text,
            "redistribute float32 [4, 8] {Shard(0)} on cpu mesh (tp=4) to {Shard(1)}\n"
            "  step 1: copy {Shard(0)} -> {Shard(1)}; receives at most 24 bytes a device, 96 in all\n"
            "  peak memory: 64 bytes a device\n");
  const DeviceMesh other("cpu", {2}, {8, 9}, {"pp"});
  const std::string across =
      explain_redistribute(Layout(mesh, {Shard(0)}, 2), Layout(other, {Replicate()}, 2), {4, 8}, kFloat64);
  EXPECT_NE(across.find("on cpu mesh (pp=2) of devices [8, 9]"), std::string::npos) << across;
  EXPECT_NE(across.find("512 in all"), std::string::npos) << across;
}

TEST(RedistributeCost, TakesFewerStagesForSmallTensorsAndLessMemoryForLargeOnes) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2});
  const Layout from(mesh, {Partial()}, 1);
  EXPECT_EQ(plan_of(mesh, {64}, from, Layout::replicated(mesh)).stages.size(), 1u);
  EXPECT_EQ(plan_of(mesh, {1 << 20}, from, Layout::replicated(mesh)).stages.size(), 2u);
}

TEST(RedistributeCost, ExplainsStepsBytesAndPeak) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4}, {"tp"});
  const RedistributePlan plan = plan_of(mesh, {4, 8}, Layout(mesh, {Partial()}, 2), Layout(mesh, {Replicate()}, 2));
  EXPECT_EQ(plan.explain(block_binding(4, 1)),
            "redistribute float32 [4, 8] {Partial(sum)} on cpu mesh (tp=4) to {Replicate()}\n"
            "  step 1: fold sum over tp {Partial(sum)} -> {Shard(0)}; receives at most 96 bytes a device, 384 in all\n"
            "  step 2: copy {Shard(0)} -> {Replicate()}; receives at most 96 bytes a device, 384 in all\n"
            "  peak memory: 256 bytes a device\n");
  const RedistributePlan nothing = plan_of(mesh, {4}, Layout(mesh, {Shard(0)}, 1), Layout(mesh, {Shard(0)}, 1));
  EXPECT_EQ(nothing.explain(block_binding(4, 1)), "nothing to do: the layouts are equal\n");
}

}  // namespace
}  // namespace dtorch
