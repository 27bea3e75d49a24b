// placement_cases.md, A (creation and layout), B (redistribute) and G (shard order).
// C26 and the rest of C are in placement_operator_test.cc. Left out: none of A, B and G.
#include <random>

#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

// --- A
TEST_F(LayoutCase, C01) {
  const HostTensor value = iota({8, 7, 4, 6});
  const Tensor x = from_host(value, {.mesh = cpu_mesh({4}), .placements = {S(0)}});
  expect_tensor(x, {S(0)}, value);
  expect_local_shapes(x, {4, Shape{2, 7, 4, 6}});
}

TEST_F(LayoutCase, C02) {
  const Tensor x = iota_on({4, 11}, {4}, {S(1)});
  expect_tensor(x, {S(1)}, iota({4, 11}));
  expect_local_shapes(x, {{4, 3}, {4, 3}, {4, 3}, {4, 2}});
}

TEST_F(LayoutCase, C04) {
  const Tensor z = zeros({4, 8}, {.mesh = cpu_mesh({2}), .placements = {S(-1)}});
  const Tensor x = from_host(iota({4, 8}), {.mesh = cpu_mesh({2}), .placements = {S(-1)}});
  expect_tensor(z, {S(1)}, HostTensor({4, 8}, kFloat32));
  expect_tensor(x, {S(1)}, iota({4, 8}));
  expect_local_shapes(z, {{4, 4}, {4, 4}});
  expect_local_shapes(x, {{4, 4}, {4, 4}});
}

TEST_F(LayoutCase, C05) {
  const Tensor z = zeros({3, 4}, {.mesh = cpu_mesh({4}), .placements = {S(0)}});
  expect_tensor(z, {S(0)}, HostTensor({3, 4}, kFloat32));
  expect_local_shapes(z, {{1, 4}, {1, 4}, {1, 4}, {0, 4}});
}

TEST_F(LayoutCase, C06) {
  const std::string what = message_of<MeshError>([] {
    zeros({4, 4}, {.mesh = cpu_mesh({2, 2}), .placements = {S(0)}});
  });
  EXPECT_TRUE(contains(what, "1") && contains(what, "2")) << what;
}

TEST_F(LayoutCase, C07) {
  const Tensor x = empty({8, 7}, {.mesh = cpu_mesh({2, 1, 1}), .placements = {R(), S(1), R()}});
  EXPECT_EQ(x.placements(), (Placements{R(), R(), R()}));
  expect_local_shapes(x, {{8, 7}, {8, 7}});
}

TEST_F(PlacementCase, C08) {
  const auto draw = [](const TensorOptions& options) {
    manual_seed(42);
    return randn({8, 7, 4, 6}, options);
  };
  const HostTensor one = draw({}).to_host();
  expect_tensor(draw({.mesh = cpu_mesh({4}), .placements = {S(0)}}), {S(0)}, one);
  const Tensor uneven = draw({.mesh = cpu_mesh({3}), .placements = {S(0)}});
  expect_tensor(uneven, {S(0)}, one);
  expect_local_shapes(uneven, {{3, 7, 4, 6}, {3, 7, 4, 6}, {2, 7, 4, 6}});
}

TEST_F(LayoutCase, C09) {
  const Tensor x = ones({4, 2}, {.mesh = cpu_mesh({2}), .placements = {P()}});
  const HostTensor value = HostTensor::full({4, 2}, 1.0f);
  expect_tensor(x, {P()}, value);
  expect_tensor(x.redistribute({R()}), {R()}, value);
}

TEST_F(LayoutCase, C10) {
  EXPECT_TRUE(contains(message_of<MeshError>([] { DeviceMesh("cpu", {2}, {0, 0}); }), "0"));
  expect_tensor(iota_on({4}, {2}, {S(0)}), {S(0)}, iota({4}));
}

// --- B
TEST_F(LayoutCase, C11) {
  const Tensor x = iota_on({5, 9}, {2}, {S(0)}).redistribute({R()});
  expect_tensor(x, {R()}, iota({5, 9}));
  expect_local_shapes(x, {{5, 9}, {5, 9}});
}

TEST_F(LayoutCase, C12) {
  const Tensor source = iota_on({5, 9}, {2}, {S(1)});
  const Tensor x = source.redistribute({S(0)});
  expect_local_shapes(source, {{5, 5}, {5, 4}});
  expect_tensor(x, {S(0)}, iota({5, 9}));
  expect_local_shapes(x, {{3, 9}, {2, 9}});
  expect_tensor(source, {S(1)}, iota({5, 9}));
}

TEST_F(LayoutCase, C13) { expect_tensor(iota_on({5, 9}, {2}, {P()}).redistribute({R()}), {R()}, iota({5, 9}), 1e-5); }

TEST_F(LayoutCase, C15) {
  const Tensor x = iota_on({4, 8}, {2}, {P()}).redistribute({S(1)});
  expect_tensor(x, {S(1)}, iota({4, 8}), 1e-5);
  expect_local_shapes(x, {{4, 4}, {4, 4}});
}

TEST_F(LayoutCase, C16) {
  const Tensor x = iota_on({8, 2}, {2, 2}, {S(0), S(0)}).redistribute({R(), S(0)});
  expect_tensor(x, {R(), S(0)}, iota({8, 2}));
  for (int64_t device = 0; device < 4; ++device) {
    const Box rows{{4 * (device % 2), 0}, {4, 2}};
    EXPECT_TRUE(x.to_host_local(device).equals(part_of(iota({8, 2}), rows)));
  }
}

TEST_F(LayoutCase, C17) {
  const Tensor x = iota_on({8, 2}, {2, 2}, {S(0), R()}).redistribute({R(), S(0)});
  expect_tensor(x, {R(), S(0)}, iota({8, 2}));
  for (int64_t device = 0; device < 4; ++device) {
    EXPECT_TRUE(x.to_host_local(device).equals(part_of(iota({8, 2}), {{4 * (device % 2), 0}, {4, 2}})));
  }
}

TEST_F(LayoutCase, C19) {
  const Tensor x = iota_on({4, 16}, {4, 2}, {S(0), S(1)});
  const std::vector<std::pair<Placements, Shape>> targets = {
      {{R(), S(1)}, {4, 8}}, {{S(0), R()}, {1, 16}}, {{R(), R()}, {4, 16}}};
  for (const auto& [placements, local_shape] : targets) {
    const Tensor y = x.redistribute(placements);
    expect_tensor(y, placements, iota({4, 16}));
    expect_local_shapes(y, std::vector<Shape>(8, local_shape));
  }
}

TEST_F(LayoutCase, C20) {
  const Tensor x = iota_on({2, 8, 24}, {2, 2, 2}, {S(0), S(2), S(2)});
  expect_local_shapes(x, std::vector<Shape>(8, Shape{1, 8, 6}));
  const Tensor all = x.redistribute({R(), R(), R()});
  expect_tensor(all, {R(), R(), R()}, iota({2, 8, 24}));
  expect_tensor(all.redistribute({S(0), S(2), S(2)}), {S(0), S(2), S(2)}, iota({2, 8, 24}));
}

TEST_F(LayoutCase, C21) {
  const DeviceMesh first("cpu", {2}, {0, 1}), second("cpu", {2}, {2, 3});
  const Tensor x = distribute(iota({5, 9}), first, {S(0)}).redistribute(second, {S(0)});
  EXPECT_EQ(x.mesh(), second);
  expect_tensor(x, {S(0)}, iota({5, 9}));
  expect_local_shapes(x, {{3, 9}, {2, 9}});
}

TEST_F(LayoutCase, C23) {
  const Tensor x = distribute(iota({2, 4, 8}), cpu_mesh({2, 2, 2}, {"dp", "cp", "tp"}), {R(), S(1), S(2)});
  EXPECT_TRUE(contains(message_of<KeyError>([&] {
                         x.redistribute_by_dict({{"dp", S(0)}}, ByDictMode::kRaise);
                       }),
                       "cp"));
  expect_tensor(x.redistribute_by_dict({{"dp", S(0)}}, ByDictMode::kKeep), {S(0), S(1), S(2)}, iota({2, 4, 8}));
  expect_tensor(x.redistribute_by_dict({{"dp", S(0)}}, ByDictMode::kReplicate), {S(0), R(), R()}, iota({2, 4, 8}));
}

// --- G
DeviceMesh dp_tp() { return cpu_mesh({2, 2}, {"dp", "tp"}); }
Layout swapped() { return Layout(dp_tp(), {S(0), S(0)}, 2, std::vector<std::string>{"tp", "dp"}); }

void expect_rows(const Tensor& x, const std::vector<std::pair<int64_t, int64_t>>& offset_and_count) {
  for (size_t i = 0; i < offset_and_count.size(); ++i) {
    const auto [offset, count] = offset_and_count[i];
    EXPECT_EQ(x.layout().box_at(x.shape(), static_cast<int64_t>(i)), (Box{{offset, 0}, {count, x.shape()[1]}}));
  }
  EXPECT_EQ(check_tensor(x, iota(x.shape()), 1e-5), "");
}

int64_t bytes_of_change(const Tensor& from, const Tensor& to) {
  return redistribute_bytes(from.shape(), from.dtype(), from.layout(), to.layout());
}

TEST_F(LayoutCase, O01) { expect_rows(iota_on({10, 3}, {2, 2}, {S(0), S(0)}), {{0, 3}, {3, 2}, {5, 3}, {8, 2}}); }

TEST_F(LayoutCase, O02) {
  const Tensor x = iota_on({10, 3}, {2, 2}, {S(0), S(0)});
  const Tensor y = x.redistribute({S(0), R()});
  expect_rows(y, {{0, 5}, {0, 5}, {5, 5}, {5, 5}});
  // One all-gather inside each group of two: every device gets what its neighbour holds, 2 + 3 + 2 + 3 rows.
  EXPECT_EQ(bytes_of_change(x, y), 10 * 3 * 4);
}

TEST_F(LayoutCase, O03) {
  const Tensor x = distribute(iota({10, 3}), swapped());
  expect_rows(x, {{0, 3}, {5, 3}, {3, 2}, {8, 2}});
  const Tensor y = x.redistribute({R(), S(0)});
  expect_rows(y, {{0, 5}, {5, 5}, {0, 5}, {5, 5}});
  EXPECT_EQ(bytes_of_change(x, y), 10 * 3 * 4);
}

TEST_F(LayoutCase, O04) {
  const Tensor plain = distribute(iota({10, 3}), dp_tp(), {S(0), S(0)}), other = distribute(iota({10, 3}), swapped());
  EXPECT_FALSE(plain.layout() == other.layout());
  const std::string what = message_of([&] { plain + other; });
  EXPECT_TRUE(contains(what, "{dp, tp}") && contains(what, "{tp, dp}")) << what;
}

TEST_F(LayoutCase, O05) {
  const Tensor x = distribute(iota({10, 3}), dp_tp(), {P(), S(0)});
  const Tensor y = x.redistribute({S(0), S(0)}, {.order = {"tp", "dp"}});
  EXPECT_EQ(y.layout(), swapped());
  expect_rows(y, {{0, 3}, {5, 3}, {3, 2}, {8, 2}});
  // The layout that redistribute gives by itself: the new shard innermost.
  EXPECT_EQ(x.redistribute({S(0), S(0)}).layout(), swapped());
}

// --- F.1
TEST_F(LayoutCase, F01RandomMeshesShapesAndPlacementsRedistributeExactly) {
  std::mt19937_64 random(20);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const std::vector<Shape> meshes = {{1}, {2}, {3}, {5}, {8}, {2, 2}, {2, 3}, {4, 2}, {1, 3}, {2, 2, 2}, {2, 1, 3}};
  for (int i = 0; i < 150; ++i) {
    const DeviceMesh mesh = cpu_mesh(meshes[static_cast<size_t>(below(static_cast<int64_t>(meshes.size())))]);
    Shape shape;
    for (int64_t d = 1 + below(3); d > 0; --d) shape.push_back(1 + below(13));
    const auto any_layout = [&](bool with_partial) {
      Placements placements;
      AxisList order;
      for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
        const int64_t choice = below(shape.ndim() + (with_partial ? 2 : 1));
        placements.push_back(choice < shape.ndim() ? S(choice) : choice == shape.ndim() ? R() : P());
        order.insert(order.begin() + below(order.size() + 1), static_cast<int8_t>(axis));
      }
      return Layout(mesh, placements, shape.ndim(), order);
    };
    const Layout from = any_layout(true), to = any_layout(true);
    SCOPED_TRACE(shape.str() + " on " + mesh.str() + " from " + from.str() + " to " + to.str());
    const HostTensor value = iota(shape);
    const Tensor source = distribute(value, from);
    const double tolerance = from.has_partial() ? 1e-5 : 0;
    const Tensor result = source.redistribute(to);
    EXPECT_EQ(result.layout(), to);
    EXPECT_EQ(check_tensor(result, value, tolerance), "");
    EXPECT_EQ(check_tensor(source, value, tolerance), "") << "the source has changed";
  }
}

}  // namespace
}  // namespace dtorch::test
