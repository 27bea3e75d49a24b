// Plans executed on arrays: every device gets exactly its part, for all pairs of layouts on small meshes and between
// meshes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/mesh/simulator.h"

namespace dtorch::test {
namespace {

const std::vector<ReduceOp> kAllKinds{kSum, kAvg, kMax, kMin};

// The value is kept by any order of reducing, so it can be asked of the result.
bool kinds_commute(const Layout& a, const Layout& b) {
  bool linear = false;
  bool maximum = false;
  bool minimum = false;
  for (const Layout* layout : {&a, &b}) {
    for (const Placement& p : layout->placements()) {
      if (!p.is_partial()) continue;
      (p.reduce == kMax ? maximum : p.reduce == kMin ? minimum : linear) = true;
    }
  }
  return linear + maximum + minimum <= 1;
}

bool only_own_sources(const RedistributePlan& plan, const DeviceBinding& binding) {
  for (const Stage& stage : plan.stages) {
    for (int64_t device : stage.to->layout.mesh().devices()) {
      for (const PlanPiece& piece : pieces_for(stage, device, binding)) {
        for (int64_t source : piece.sources) {
          if (source != device) return false;
        }
      }
    }
  }
  return true;
}

void check_pair(const Distributed& source, const Layout& to, const DeviceBinding& binding) {
  const TensorMeta* from_meta = intern_meta(source.global_shape, kFloat32, source.layout);
  const TensorMeta* to_meta = intern_meta(source.global_shape, kFloat32, to);
  const RedistributePlan plan = make_redistribute_plan(from_meta, to_meta);
  SCOPED_TRACE(from_meta->str() + " -> " + to_meta->str() + "\n" + plan.explain(binding));
  EXPECT_EQ(plan.kind == PlanKind::kNothing, source.layout == to);
  EXPECT_LE(plan.stages.size(), 4u);
  const Distributed result = run_plan(plan, source, to, binding);
  EXPECT_TRUE(equal(result, expected_redistribute(source, to)));
  if (kinds_commute(source.layout, to)) {
    EXPECT_EQ(assemble(result).data, assemble(source).data);
  }
  EXPECT_EQ(plan.bytes_moved(binding), redistribute_bytes(source.global_shape, kFloat32, source.layout, to));
  if (plan.kind != PlanKind::kTransfer) {
    EXPECT_TRUE(only_own_sources(plan, binding));
  }
  if (plan.kind == PlanKind::kTransfer && !source.layout.has_partial() && source.layout.mesh() == to.mesh()) {
    EXPECT_FALSE(only_own_sources(plan, binding)) << "the plan is local";
  }
}

void check_all_pairs(const DeviceMesh& mesh, const Shape& shape, const std::vector<ReduceOp>& kinds) {
  const DeviceBinding binding = block_binding(mesh.num_devices(), 2);
  const std::vector<Layout> layouts = all_layouts(mesh, shape.ndim(), kinds);
  for (const Layout& from : layouts) {
    const Distributed source = distribute(iota(shape), from);
    for (const Layout& to : layouts) {
      check_pair(source, to, binding);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Redistribute, GivesEveryDeviceItsPartForAllPairsOnOneAxis) {
  for (int64_t n = 1; n <= 5; ++n) {
    for (const Shape& shape :
         {Shape{}, Shape{0}, Shape{1}, Shape{5}, Shape{17}, Shape{2, 3}, Shape{5, 9}, Shape{3, 0}}) {
      check_all_pairs(init_device_mesh("cpu", {n}), shape, kAllKinds);
    }
  }
  check_all_pairs(init_device_mesh("cpu", {8}), {9, 3, 2}, kAllKinds);
}

TEST(Redistribute, GivesEveryDeviceItsPartForAllPairsOnTwoAxes) {
  check_all_pairs(init_device_mesh("cpu", {2, 2}, {"dp", "tp"}), {5, 3}, kAllKinds);
  check_all_pairs(init_device_mesh("cpu", {2, 3}), {7}, kAllKinds);
  check_all_pairs(init_device_mesh("cpu", {2, 3}), {4, 5}, {kSum, kAvg});
  check_all_pairs(DeviceMesh("cpu", {3, 2}, {5, 3, 0, 4, 1, 2}), {10, 1}, {kSum});
  check_all_pairs(init_device_mesh("cpu", {4, 2}), {}, kAllKinds);
}

TEST(Redistribute, GivesEveryDeviceItsPartForSampledPairsOnThreeAxes) {
  std::mt19937 random(7);
  for (const Shape& sizes : {Shape{2, 2, 2}, Shape{2, 1, 3}, Shape{3, 2, 2}}) {
    const DeviceMesh mesh = init_device_mesh("cpu", sizes);
    const DeviceBinding binding = block_binding(mesh.num_devices(), 3);
    for (const Shape& shape : {Shape{11}, Shape{5, 4}, Shape{3, 2, 6}}) {
      const std::vector<Layout> layouts = all_layouts(mesh, shape.ndim(), {kSum, kMax});
      for (int sample = 0; sample < 150 && !HasFailure(); ++sample) {
        const Distributed source = distribute(iota(shape), layouts[random() % layouts.size()]);
        check_pair(source, layouts[random() % layouts.size()], binding);
      }
    }
  }
}

TEST(Redistribute, GivesEveryDeviceItsPartBetweenMeshes) {
  const std::vector<DeviceMesh> meshes{
      DeviceMesh("cpu", {2}, {0, 1}),
      DeviceMesh("cpu", {2}, {2, 3}),
      DeviceMesh("cpu", {2}, {1, 0}),
      DeviceMesh("cpu", {2}, {1, 2}),
      DeviceMesh("cpu", {3}, {4, 1, 6}),
      init_device_mesh("cpu", {4}),
      init_device_mesh("cpu", {2, 2}, {"dp", "tp"}),
      DeviceMesh("cpu", {2, 2}, {0, 1, 2, 3}, {"a", "b"}),
      DeviceMesh("cpu", {2, 2}, {4, 5, 6, 7}),
      DeviceMesh("cpu", {3, 2}, {7, 0, 2, 5, 1, 3}),
      init_device_mesh("cpu", {2, 1, 4}),
      DeviceMesh("cpu", {}, {3}),
  };
  std::mt19937 random(11);
  for (const Shape& shape : {Shape{}, Shape{5, 9}, Shape{10, 1}}) {
    for (const DeviceMesh& a : meshes) {
      const std::vector<Layout> from = all_layouts(a, shape.ndim(), {kSum, kAvg, kMin});
      for (const DeviceMesh& b : meshes) {
        if (a == b) continue;
        const std::vector<Layout> to = all_layouts(b, shape.ndim(), {kSum, kAvg, kMin});
        for (int sample = 0; sample < 12 && !HasFailure(); ++sample) {
          const Distributed source = distribute(iota(shape), from[random() % from.size()]);
          check_pair(source, to[random() % to.size()], block_binding(8, 1 + sample % 4));
        }
      }
    }
  }
}

TEST(Redistribute, FoldsTheSamePartsInTheSameOrderWhateverNodeHoldsThem) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2, 2});
  const TensorMeta* from = intern_meta({8, 4}, kFloat32, Layout(mesh, {Partial(), Replicate(), Partial()}, 2));
  const TensorMeta* to = intern_meta({8, 4}, kFloat32, Layout(mesh, {Replicate(), Replicate(), Replicate()}, 2));
  const RedistributePlan plan = make_redistribute_plan(from, to);
  ASSERT_FALSE(plan.stages.front().folded_axes.empty());
  for (int32_t nodes : {1, 2, 4, 8}) {
    for (int64_t device = 0; device < 8; ++device) {
      for (const PlanPiece& piece : pieces_for(plan.stages.front(), device, block_binding(8, nodes))) {
        ASSERT_EQ(piece.sources.size(), 4u);
        // Positions on axes 0 and 2 in mesh order, whichever replica on axis 1 sends.
        const std::vector<int64_t> parts{0, 1, 4, 5};
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(piece.sources[i] & ~2, parts[i]);
      }
    }
  }
}

TEST(Redistribute, KeepsPositionZeroAndZerosForANewPartialSumAndTheValueEverywhereForOthers) {
  const DeviceMesh mesh = init_device_mesh("cpu", {3});
  const Distributed value = distribute(iota({4}), Layout(mesh, {Replicate()}, 1));
  const Distributed sum = redistribute(value, Layout(mesh, {Partial()}, 1));
  EXPECT_EQ(sum.parts.at(0).data, iota({4}).data);
  EXPECT_EQ(sum.parts.at(2).data, std::vector<double>(4, 0.0));
  for (ReduceOp kind : {kAvg, kMax, kMin}) {
    const Distributed other = redistribute(value, Layout(mesh, {Partial(kind)}, 1));
    for (int64_t device = 0; device < 3; ++device) EXPECT_EQ(other.parts.at(device).data, iota({4}).data);
  }
}

}  // namespace
}  // namespace dtorch::test
