// Who holds what, against an enumeration that deals out items one by one, and the order of shards.
#include "mesh/layout.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "tests/mesh/simulator.h"

namespace dtorch::test {
namespace {

// The items of a dim that a device holds, dealt out by counting: part after part takes its share from the front.
std::vector<int64_t> items_by_counting(std::vector<int64_t> items,
                                       const std::vector<std::pair<int64_t, int64_t>>& cuts) {
  for (const auto& [parts, position] : cuts) {
    std::vector<std::vector<int64_t>> piles(static_cast<size_t>(parts));
    std::vector<size_t> heights(static_cast<size_t>(parts), 0);
    for (size_t i = 0; i < items.size(); ++i) ++heights[i % static_cast<size_t>(parts)];
    size_t next = 0;
    for (size_t p = 0; p < piles.size(); ++p) {
      while (piles[p].size() < heights[p]) piles[p].push_back(items[next++]);
    }
    items = piles[static_cast<size_t>(position)];
  }
  return items;
}

// Checks every device's box, and that each element is held by as many devices as the axes without Shard make copies.
void check_against_counting(const Layout& layout, const Shape& shape) {
  const DeviceMesh& mesh = layout.mesh();
  std::vector<int64_t> held(static_cast<size_t>(shape.num_elements()), 0);
  int64_t copies = mesh.num_devices();
  for (int8_t axis : layout.shard_order()) copies /= mesh.shape()[axis];
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    const Box box = layout.box_at(shape, index);
    const Shape coordinate = mesh.coordinate_of_index(index);
    for (int64_t dim = 0; dim < shape.ndim(); ++dim) {
      std::vector<std::pair<int64_t, int64_t>> cuts;
      for (int8_t axis : layout.axes_of_dim(dim)) cuts.emplace_back(mesh.shape()[axis], coordinate[axis]);
      std::vector<int64_t> all;
      for (int64_t i = 0; i < shape[dim]; ++i) all.push_back(i);
      const std::vector<int64_t> items = items_by_counting(all, cuts);
      ASSERT_EQ(box.size[dim], static_cast<int64_t>(items.size())) << layout << shape;
      ASSERT_TRUE(items.empty() || box.offset[dim] == items.front()) << layout << shape;
    }
    ASSERT_EQ(box, layout.box_of(shape, mesh.devices()[static_cast<size_t>(index)]));
    for_each_coordinate(box.size, [&](const Shape& local) {
      Shape at = local;
      for (int64_t d = 0; d < at.size(); ++d) at[d] += box.offset[d];
      ++held[static_cast<size_t>(flat_index(at, shape))];
    });
  }
  for (int64_t count : held) ASSERT_EQ(count, copies) << layout << shape;
}

TEST(Layout, AgreesWithCountingForAllSmallCasesOfOneDim) {
  for (const Shape& sizes :
       {Shape{1}, Shape{2}, Shape{3}, Shape{4}, Shape{5}, Shape{6}, Shape{7}, Shape{8}, Shape{2, 2}, Shape{2, 3},
        Shape{3, 2}, Shape{2, 4}, Shape{4, 2}, Shape{1, 8}, Shape{2, 2, 2}, Shape{2, 1, 3}}) {
    const DeviceMesh mesh = init_device_mesh("cpu", sizes);
    for (const Layout& layout : all_layouts(mesh, 1, {kSum})) {
      for (int64_t n = 0; n <= 17; ++n) check_against_counting(layout, {n});
    }
  }
}

TEST(Layout, AgreesWithCountingForAllPlacementsOfTwoDims) {
  for (const Shape& sizes : {Shape{3}, Shape{2, 2}, Shape{2, 3}, Shape{2, 2, 2}}) {
    const DeviceMesh mesh = init_device_mesh("cpu", sizes);
    for (const Layout& layout : all_layouts(mesh, 2, {})) {
      for (int64_t n : {0, 1, 2, 5, 7, 8}) {
        for (int64_t m : {0, 1, 3, 9}) check_against_counting(layout, {n, m});
      }
    }
  }
}

class Square : public ::testing::Test {
 protected:
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  std::vector<int64_t> rows(const Layout& layout, const Shape& shape) const {
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < 4; ++i) sizes.push_back(layout.box_at(shape, i).size[0]);
    return sizes;
  }
  std::vector<int64_t> offsets(const Layout& layout, const Shape& shape) const {
    std::vector<int64_t> starts;
    for (int64_t i = 0; i < 4; ++i) starts.push_back(layout.box_at(shape, i).offset[0]);
    return starts;
  }
};

TEST_F(Square, SplitsADimByOneAxisAfterTheOther) {
  const Layout layout(mesh, {Shard(0), Shard(0)}, 2);
  EXPECT_EQ(rows(layout, {10, 3}), (std::vector<int64_t>{3, 2, 3, 2}));
  EXPECT_EQ(offsets(layout, {10, 3}), (std::vector<int64_t>{0, 3, 5, 8}));
}

TEST_F(Square, LeavesTheOuterShardWhenTheInnermostIsGathered) {
  const Layout layout = Layout(mesh, {Shard(0), Shard(0)}, 2).with_placements({Shard(0), Replicate()}, 2);
  EXPECT_EQ(rows(layout, {10, 3}), (std::vector<int64_t>{5, 5, 5, 5}));
  EXPECT_EQ(offsets(layout, {10, 3}), (std::vector<int64_t>{0, 0, 5, 5}));
}

TEST_F(Square, GathersTheInnermostAxisOfANamedOrder) {
  const Layout named(mesh, {Shard(0), Shard(0)}, 2, std::vector<std::string>{"tp", "dp"});
  EXPECT_EQ(named.str(), "{Shard(0), Shard(0)}, order {tp, dp}");
  const Layout layout = named.with_placements({Replicate(), Shard(0)}, 2);
  EXPECT_EQ(offsets(layout, {10, 3}), (std::vector<int64_t>{0, 5, 0, 5}));
  EXPECT_EQ(rows(layout, {10, 3}), (std::vector<int64_t>{5, 5, 5, 5}));
}

TEST_F(Square, DistinguishesOrdersOfTheSamePlacements) {
  const Layout first(mesh, {Shard(0), Shard(0)}, 2);
  const Layout second(mesh, {Shard(0), Shard(0)}, 2, std::vector<std::string>{"tp"});
  EXPECT_NE(first, second);
  EXPECT_TRUE(first.order_is_default());
  EXPECT_FALSE(second.order_is_default());
  EXPECT_EQ(first, Layout(mesh, {Shard(-2), Shard(0)}, 2, AxisList{0, 1}));
  // An order of axes that share no dim says nothing.
  EXPECT_EQ(Layout(mesh, {Shard(0), Shard(1)}, 2, AxisList{1, 0}), Layout(mesh, {Shard(0), Shard(1)}, 2));
}

TEST_F(Square, AddsShardsInnermost) {
  const Layout layout = Layout(mesh, {Partial(), Shard(0)}, 2).with_placements({Shard(0), Shard(-2)}, 2);
  EXPECT_EQ(layout.order_str(), "{tp, dp}");
  EXPECT_EQ(offsets(layout, {10, 3}), (std::vector<int64_t>{0, 5, 3, 8}));
  EXPECT_EQ(Layout::replicated(mesh).with_placements({Shard(0), Shard(0)}, 2).order_str(), "{dp, tp}");
}

TEST_F(Square, PrintsBoxesDeviceByDevice) {
  EXPECT_EQ(Layout(mesh, {Shard(0), Shard(1)}, 2).describe({3, 5}),
            "device 0 at (0, 0): [0:2, 0:3]\n"
            "device 1 at (0, 1): [0:2, 3:5]\n"
            "device 2 at (1, 0): [2:3, 0:3]\n"
            "device 3 at (1, 1): [2:3, 3:5]\n"
            "        0:3   3:5\n"
            "      +-----+-----+\n"
            "  0:2 | 0   | 1   |\n"
            "      +-----+-----+\n"
            "  2:3 | 2   | 3   |\n"
            "      +-----+-----+\n");
  const std::string vector = Layout(mesh, {Replicate(), Shard(0)}, 1).describe({3});
  EXPECT_NE(vector.find("    0:2   2:3\n"
                        "   +-----+-----+\n"
                        "   | 0 2 | 1 3 |\n"
                        "   +-----+-----+\n"),
            std::string::npos)
      << vector;
}

TEST_F(Square, PrintsNoPictureOfMoreThanTwoDimsOrOfNothing) {
  for (const Shape& shape : {Shape{2, 2, 2}, Shape{0, 2}, Shape{}}) {
    const std::string text = Layout::replicated(mesh).describe(shape);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  }
}

TEST_F(Square, RefusesWrongPlacementsAndOrders) {
  EXPECT_THROW(Layout(mesh, {Shard(0)}, 2), MeshError);
  EXPECT_THROW(Layout(mesh, {Shard(2), Replicate()}, 2), ShapeError);
  EXPECT_THROW(Layout(mesh, {Shard(-3), Replicate()}, 2), ShapeError);
  EXPECT_THROW(Layout(mesh, {Shard(0), Replicate()}, 0), ShapeError);
  EXPECT_THROW(Layout(mesh, {Shard(0), Shard(0)}, 1, std::vector<std::string>{"pp"}), KeyError);
  EXPECT_THROW(Layout(mesh, {Shard(0), Shard(0)}, 1, std::vector<std::string>{"tp", "tp"}), KeyError);
  EXPECT_THROW(Layout(mesh, {Shard(0), Shard(0)}, 1, AxisList{2}), KeyError);
  EXPECT_THROW(Layout(mesh, {Shard(0), Shard(0)}, 1).box_of({4}, 9), InternalError);
}

TEST_F(Square, PrintsTensors) {
  EXPECT_EQ(intern_meta({4, 8}, kFloat32, Layout(mesh, {Shard(0), Replicate()}, 2))->str(),
            "float32 [4, 8] {Shard(0), Replicate()} on cpu mesh (dp=2, tp=2)");
}

TEST(Layout, NormalisesNegativeDimsAndAxesOfSizeOne) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 1, 2});
  const Layout layout(mesh, {Shard(-1), Shard(0), Replicate()}, 2);
  EXPECT_EQ(layout.placements(), (Placements{Shard(1), Replicate(), Replicate()}));
  EXPECT_TRUE(Layout(mesh, {Replicate(), Partial(), Replicate()}, 2).is_replicated());
  EXPECT_TRUE(Layout(mesh, {Partial(kMax), Shard(0), Replicate()}, 2).has_partial());
}

TEST(Layout, InternsEqualLayoutsAndMetasFromAnyThread) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
  std::vector<const TensorMeta*> seen(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&, i] {
      seen[i] = intern_meta({77, 3}, kInt64, Layout(mesh, {Shard(1), Partial(kMin)}, 2));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<const TensorMeta*>(seen.begin(), seen.end()).size(), 1u);
  EXPECT_EQ(seen[0]->num_bytes(), 77 * 3 * 8);
}

TEST(Layout, KeepsOffsetsIn64BitsThroughEverySplit) {
  // 3 x 2^33 rows over three axes, in an order that isn't the mesh's; more than 2^31 elements in every part.
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 3, 2});
  const int64_t n = int64_t{3} << 33;
  const Layout layout(mesh, {Shard(0), Shard(0), Shard(0)}, 2, AxisList{1, 2, 0});
  int64_t covered = 0;
  for (int64_t index = 0; index < 12; ++index) {
    const Shape at = mesh.coordinate_of_index(index);
    const Box box = layout.box_at({n, 5}, index);
    EXPECT_EQ(box.offset[0], at[1] * (n / 3) + at[2] * (n / 6) + at[0] * (n / 12));
    EXPECT_EQ(box.size[0], n / 12);
    EXPECT_EQ(box.num_elements(), n / 12 * 5);
    covered += box.num_elements();
  }
  EXPECT_EQ(covered, n * 5);
  const Box last = layout.box_at({n, 5}, 11);
  int64_t first_element = -1;
  for_each_contiguous_run({n, 5}, last, [&](int64_t start, int64_t, int64_t length) {
    first_element = start;
    EXPECT_EQ(length, last.num_elements());
  });
  EXPECT_EQ(first_element, last.offset[0] * 5);
  EXPECT_EQ(split_part(n + 1, 2, 1).offset, n / 2 + 1);
}

TEST(Layout, BindsDevicesToNodesInBlocks) {
  const DeviceBinding binding = block_binding(5, 2);
  EXPECT_EQ(binding.node_of_device, (std::vector<int32_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(binding.slot_of_device, (std::vector<int32_t>{0, 1, 2, 0, 1}));
  EXPECT_EQ(block_binding(1, 3).num_nodes, 3);
}

}  // namespace
}  // namespace dtorch::test
