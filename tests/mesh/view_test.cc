// view_layout against an enumeration of elements: what it gives is true, and what it refuses has no true layout.
#include <gtest/gtest.h>

#include <map>

#include "mesh/signature.h"
#include "tests/mesh/simulator.h"

namespace dtorch::test {
namespace {

// Row-major element numbers that each device holds, in its own order.
std::vector<std::vector<int64_t>> elements_by_device(const Layout& layout, const Shape& shape) {
  std::vector<std::vector<int64_t>> result;
  for (int64_t index = 0; index < layout.mesh().num_devices(); ++index) {
    const Box box = layout.box_at(shape, index);
    std::vector<int64_t>& elements = result.emplace_back();
    for_each_coordinate(box.size, [&](const Shape& local) {
      Shape at = local;
      for (int64_t d = 0; d < at.size(); ++d) at[d] += box.offset[d];
      elements.push_back(flat_index(at, shape));
    });
  }
  return result;
}

AxisList sharded_axes(const Layout& layout) {
  AxisList axes;
  for (int64_t axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (layout.placement(axis).is_shard()) axes.push_back(static_cast<int8_t>(axis));
  }
  return axes;
}

// Every shape of n elements with at most max_ndim dims.
void shapes_of(int64_t n, int64_t max_ndim, const Shape& prefix, std::vector<Shape>* shapes) {
  if (n == 1) shapes->push_back(prefix);
  if (prefix.ndim() == max_ndim) return;
  for (int64_t size = 1; size <= n; ++size) {
    if (n % size != 0) continue;
    Shape longer = prefix;
    longer.push_back(size);
    shapes_of(n / size, max_ndim, longer, shapes);
  }
}

void check_all_views(const DeviceMesh& mesh, int64_t num_elements, int64_t max_ndim) {
  std::vector<Shape> shapes;
  shapes_of(num_elements, max_ndim, {}, &shapes);
  using Key = std::vector<std::vector<int64_t>>;
  std::vector<std::map<Key, std::vector<Layout>>> known;
  for (const Shape& shape : shapes) {
    std::map<Key, std::vector<Layout>>& layouts = known.emplace_back();
    for (const Layout& layout : all_layouts(mesh, shape.ndim(), {})) {
      layouts[elements_by_device(layout, shape)].push_back(layout);
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (const auto& [elements, layouts] : known[i]) {
      for (const Layout& layout : layouts) {
        const TensorMeta input{shapes[i], kFloat32, layout};
        for (size_t j = 0; j < shapes.size(); ++j) {
          std::string reason;
          const std::optional<Layout> view = view_layout(input, shapes[j], &reason);
          SCOPED_TRACE(input.str() + " as " + shapes[j].str());
          if (view) {
            EXPECT_EQ(elements_by_device(*view, shapes[j]), elements) << *view;
            EXPECT_EQ(sharded_axes(*view), sharded_axes(layout)) << *view;
            continue;
          }
          EXPECT_FALSE(reason.empty());
          const auto found = known[j].find(elements);
          if (found == known[j].end()) continue;
          for (const Layout& other : found->second) {
            EXPECT_NE(sharded_axes(other), sharded_axes(layout)) << "refused, yet " << other << " is true";
          }
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(View, IsExactForAllSmallShapesAndLayoutsOnOneAxis) {
  for (int64_t axis : {2, 3, 4}) {
    for (int64_t n : {1, 2, 6, 8, 12, 16}) check_all_views(init_device_mesh("cpu", {axis}), n, 4);
  }
}

TEST(View, IsExactForAllSmallShapesAndLayoutsOnTwoAxes) {
  for (int64_t n : {1, 2, 4, 6, 8, 12}) check_all_views(init_device_mesh("cpu", {2, 2}), n, 3);
  for (int64_t n : {6, 12}) check_all_views(init_device_mesh("cpu", {2, 3}), n, 3);
  check_all_views(init_device_mesh("cpu", {3, 2}), 12, 3);
}

TEST(View, IsExactOnThreeAxes) { check_all_views(init_device_mesh("cpu", {2, 2, 2}), 8, 2); }

TEST(View, SplitsHeadsOffASharedDim) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"cp", "tp"});
  const TensorMeta input{{2, 16, 8}, kFloat32, Layout(mesh, {Shard(1), Shard(2)}, 3)};
  const Layout view = view_layout(input, {2, 16, 4, 2}, nullptr).value();
  EXPECT_EQ(view.placements(), (Placements{Shard(1), Shard(2)}));
}

TEST(View, RefusesHeadsThatShardsWouldCut) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
  std::string reason;
  EXPECT_FALSE(view_layout({{2, 16, 6}, kFloat32, Layout(mesh, {Shard(2)}, 3)}, {2, 16, 3, 2}, &reason));
  EXPECT_EQ(reason,
            "view of [2, 16, 6] as [2, 16, 3, 2] would cut the shards of dim 2 (size 6, 2 shards on axis tp): dim 2 of "
            "size 3 is not divisible by 2");
}

TEST(View, RefusesUnevenRowsThatDontMatchTheFlatSplit) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  std::string reason;
  EXPECT_FALSE(view_layout({{10, 4}, kFloat32, Layout(mesh, {Shard(0)}, 2)}, {40}, &reason));
  EXPECT_FALSE(reason.empty());
  EXPECT_TRUE(view_layout({{8, 4}, kFloat32, Layout(mesh, {Shard(0)}, 2)}, {32}, &reason));
  EXPECT_FALSE(view_layout({{8, 4}, kFloat32, Layout(mesh, {Shard(1)}, 2)}, {32}, &reason));
}

TEST(View, KeepsTheOrderOfAxes) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const Layout swapped(mesh, {Shard(0), Shard(0)}, 1, std::vector<std::string>{"tp", "dp"});
  const Layout view = view_layout({{16}, kFloat32, swapped}, {2, 8}, nullptr).value();
  EXPECT_EQ(view.placements(), (Placements{Shard(1), Shard(0)}));
  const Layout back = view_layout({{2, 8}, kFloat32, view}, {4, 4}, nullptr).value();
  EXPECT_EQ(back.str(), "{Shard(0), Shard(0)}, order {tp, dp}");
}

TEST(View, LetsEveryPartialPass) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
  for (ReduceOp kind : {kSum, kAvg, kMax, kMin}) {
    const TensorMeta input{{4, 6}, kFloat32, Layout(mesh, {Partial(kind), Shard(0)}, 2)};
    EXPECT_EQ(view_layout(input, {24}, nullptr).value().placements(), (Placements{Partial(kind), Shard(0)}));
  }
}

TEST(View, KeepsTheLayoutOfAnEmptyTensorWhereDimsStay) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
  const TensorMeta input{{4, 0, 6}, kFloat32, Layout(mesh, {Shard(0), Shard(2)}, 3)};
  EXPECT_EQ(view_layout(input, {4, 0, 3, 6}, nullptr).value().placements(), (Placements{Shard(0), Shard(3)}));
  EXPECT_EQ(view_layout(input, {0}, nullptr).value().placements(), (Placements{Shard(0), Shard(0)}));
  std::string reason;
  EXPECT_FALSE(view_layout(input, {4}, &reason));
  EXPECT_EQ(reason, "view of [4, 0, 6] as [4] changes the number of elements from 0 to 4");
}

TEST(View, MovesAShardOfADimOfSizeOne) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2});
  const TensorMeta input{{1, 4}, kFloat32, Layout(mesh, {Shard(0)}, 2)};
  EXPECT_EQ(view_layout(input, {4, 1}, nullptr).value().placement(0), Shard(1));
  std::string reason;
  EXPECT_FALSE(view_layout(input, {4}, &reason));
  EXPECT_NE(reason.find("no dim of the new shape has size 1"), std::string::npos);
}

TEST(View, CostsNothingPerElement) {
  const DeviceMesh mesh = init_device_mesh("cpu", {8, 8});
  const int64_t n = int64_t{1} << 40;
  const TensorMeta input{{64, n}, kFloat32, Layout(mesh, {Shard(0), Shard(1)}, 2)};
  EXPECT_EQ(view_layout(input, {64, n / 64, 64}, nullptr).value().placements(), (Placements{Shard(0), Shard(1)}));
}

}  // namespace
}  // namespace dtorch::test
