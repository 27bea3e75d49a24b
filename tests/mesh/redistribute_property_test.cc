// Plans between random layouts on all small meshes (up to 8 devices and 3 axes), also between meshes of other shape,
// size and devices, against brute force element by element. A seeded sample; DTORCH_REDISTRIBUTE_SAMPLES says how many
// pairs a mesh (CI: 40).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/mesh/simulator.h"

namespace dtorch::test {
namespace {

int num_samples() {
  const char* text = std::getenv("DTORCH_REDISTRIBUTE_SAMPLES");
  return text != nullptr ? std::atoi(text) : 40;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }

  // 0 to 3 dims of size 0 to 17, at most 600 elements.
  Shape shape() {
    while (true) {
      Shape shape;
      for (int64_t dims = below(4); dims > 0; --dims) shape.push_back(below(18));
      if (shape.num_elements() <= 600) return shape;
    }
  }

  Layout layout(const DeviceMesh& mesh, int64_t ndim) {
    constexpr ReduceOp kKinds[] = {kSum, kAvg, kMax, kMin};
    Placements placements;
    AxisList order;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
      const int64_t choice = below(ndim + 3);
      placements.push_back(choice < ndim ? Shard(choice) : choice == ndim ? Replicate() : Partial(kKinds[below(4)]));
      order.insert(order.begin() + below(order.size() + 1), static_cast<int8_t>(axis));
    }
    return Layout(mesh, placements, ndim, order);
  }

  // Some devices of 0 .. 9 in any order.
  DeviceMesh on_any_devices(const Shape& sizes) {
    std::vector<int64_t> devices;
    for (int64_t device = 0; device < 10; ++device) devices.push_back(device);
    std::shuffle(devices.begin(), devices.end(), engine_);
    devices.resize(static_cast<size_t>(sizes.num_elements()));
    return DeviceMesh("cpu", sizes, devices);
  }

 private:
  std::mt19937_64 engine_;
};

// Every mesh shape of up to 3 axes and 8 devices.
std::vector<Shape> all_mesh_shapes() {
  std::vector<Shape> shapes{Shape{}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].size() == 3) continue;
    for (int64_t size = 1; size * shapes[i].num_elements() <= 8; ++size) {
      Shape longer = shapes[i];
      longer.push_back(size);
      shapes.push_back(longer);
    }
  }
  return shapes;
}

void check(const Shape& shape, const Layout& from, const Layout& to, int32_t num_nodes) {
  const DeviceBinding binding = block_binding(10, num_nodes);
  const RedistributePlan plan =
      make_redistribute_plan(intern_meta(shape, kFloat32, from), intern_meta(shape, kFloat32, to));
  SCOPED_TRACE(shape.str() + " " + from.str() + " on " + from.mesh().str() + " -> " + to.str() + " on " +
               to.mesh().str() + "\n" + plan.explain(binding));
  const Distributed source = distribute(iota(shape), from);
  const Distributed result = run_plan(plan, source, to, binding);
  EXPECT_TRUE(equal(result, expected_redistribute(source, to)));
  EXPECT_EQ(plan.bytes_moved(binding), redistribute_bytes(shape, kFloat32, from, to));
}

TEST(RedistributeProperty, HasAllMeshShapesOfUpToEightDevicesAndThreeAxes) {
  const std::vector<Shape> shapes = all_mesh_shapes();
  // 1 + 8 + 20 + 38: numbers of ordered factorisations into 0 to 3 factors of 1 .. 8.
  EXPECT_EQ(shapes.size(), 1u + 8u + 20u + 38u);
}

TEST(RedistributeProperty, HoldsBetweenRandomLayoutsOfEveryMesh) {
  Random random(2024);
  for (const Shape& sizes : all_mesh_shapes()) {
    const DeviceMesh mesh = random.on_any_devices(sizes);
    for (int i = 0; i < num_samples() && !HasFailure(); ++i) {
      const Shape shape = random.shape();
      check(shape, random.layout(mesh, shape.ndim()), random.layout(mesh, shape.ndim()),
            static_cast<int32_t>(1 + random.below(4)));
    }
  }
}

TEST(RedistributeProperty, HoldsBetweenRandomLayoutsOfTwoMeshes) {
  Random random(4202);
  const std::vector<Shape> shapes = all_mesh_shapes();
  for (const Shape& sizes : shapes) {
    for (int i = 0; i < num_samples() && !HasFailure(); ++i) {
      const DeviceMesh from = random.on_any_devices(sizes);
      const DeviceMesh to =
          random.on_any_devices(shapes[static_cast<size_t>(random.below(static_cast<int64_t>(shapes.size())))]);
      const Shape shape = random.shape();
      check(shape, random.layout(from, shape.ndim()), random.layout(to, shape.ndim()),
            static_cast<int32_t>(1 + random.below(4)));
    }
  }
}

}  // namespace
}  // namespace dtorch::test
