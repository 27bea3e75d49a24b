// Redistribution with real data: between meshes, with every kind of Partial, with another dtype; what meshes cost.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  DeviceMesh mesh(int64_t num_devices) {
    const std::vector<Shape> shapes = {{1},    {2},    {3},    {5},    {7},       {8},
                                       {2, 2}, {3, 2}, {2, 4}, {1, 3}, {2, 2, 2}, {2, 1, 3}};
    const Shape& sizes = shapes[static_cast<size_t>(below(static_cast<int64_t>(shapes.size())))];
    std::vector<int64_t> devices;
    for (int64_t device = 0; device < num_devices; ++device) devices.push_back(device);
    std::shuffle(devices.begin(), devices.end(), engine_);
    devices.resize(static_cast<size_t>(sizes.num_elements()));
    return DeviceMesh("cpu", sizes, devices);
  }
  Shape shape() {
    Shape shape;
    for (int64_t dims = below(4); dims > 0; --dims) shape.push_back(below(14));
    return shape;
  }
  // Partials of one kind only, so that the value doesn't depend on which is reduced first.
  Layout layout(const DeviceMesh& mesh, int64_t ndim, ReduceOp kind) {
    Placements placements;
    AxisList order;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
      const int64_t choice = below(ndim + 2);
      placements.push_back(choice < ndim ? S(choice) : choice == ndim ? R() : Partial(kind));
      order.insert(order.begin() + below(order.size() + 1), static_cast<int8_t>(axis));
    }
    return Layout(mesh, placements, ndim, order);
  }

 private:
  std::mt19937_64 engine_;
};

TEST_F(LayoutCase, F02AnyTwoMeshesAndEveryKindOfPartialRedistributeExactly) {
  Random random(77);
  for (int i = 0; i < 150; ++i) {
    constexpr ReduceOp kKinds[] = {kSum, kAvg, kMax, kMin};
    const ReduceOp kind = kKinds[i % 4];
    const Shape shape = random.shape();
    const Layout from = random.layout(random.mesh(8), shape.ndim(), kind);
    const Layout to = random.layout(random.mesh(8), shape.ndim(), kind);
    SCOPED_TRACE(shape.str() + " from " + from.str() + " on " + from.mesh().str() + " to " + to.str() + " on " +
                 to.mesh().str());
    const HostTensor value = i % 3 == 0 ? iota(shape, kFloat64) : iota(shape);
    const Tensor source = distribute(value, from);
    const Tensor result = source.redistribute(to);
    const double tolerance = from.has_partial() ? 1e-5 : 0;
    EXPECT_EQ(result.layout(), to);
    EXPECT_EQ(check_tensor(result, value, tolerance), "");
    EXPECT_EQ(check_tensor(source, value, tolerance), "") << "the source has changed";
    if (HasFailure()) return;
  }
}

TEST_F(LayoutCase, IntegersAreReducedExactlyBetweenMeshes) {
  const DeviceMesh first("cpu", {2, 2}, {6, 1, 3, 0}), second("cpu", {3}, {2, 3, 7});
  const HostTensor value = seq({7, 5});
  const Tensor source = distribute(value, first, {P(), S(1)});
  expect_tensor(source.redistribute(second, {S(0)}), {S(0)}, value);
  expect_tensor(source.redistribute(second, {P()}), {P()}, value);
}

TEST_F(PlacementCase, ARedistributeCastsOnTheWay) {
  const HostTensor value = iota({6, 5});
  const Tensor x = distribute(value, cpu_mesh({4}), {S(0)});
  const Tensor y = x.redistribute({R()}, {.dtype = kBFloat16});
  expect_tensor(y, {R()}, value.to(kBFloat16));
  expect_tensor(y.redistribute({S(1)}, {.dtype = kFloat64}), {S(1)}, value.to(kBFloat16).to(kFloat64));
  expect_tensor(x.redistribute(cpu_mesh({2}), {S(1)}, {.dtype = kFloat16}), {S(1)}, value.to(kFloat16));
  expect_tensor(x, {S(0)}, value);
}

TEST_F(PlacementCase, ACastingRedistributeReducesInTheWiderType) {
  // 256 + 7 ones: 264 in bfloat16 after one rounding of the exact 263, and 263 in float32.
  const Tensor p = from_local(cpu_mesh({8}), {P()},
                              [](int64_t device, const Shape& shape) {
                                return HostTensor::full(shape, device == 0 ? 256.0f : 1.0f).to(kBFloat16);
                              },
                              {8});
  expect_tensor(p.redistribute({R()}, {.dtype = kFloat32}), {R()}, HostTensor::full({8}, 263.0f));
  const Tensor wide = to(p, kFloat32);
  expect_tensor(wide.redistribute({S(0)}, {.dtype = kBFloat16}), {S(0)}, HostTensor::full({8}, 264.0f).to(kBFloat16));
}

TEST_F(LayoutCase, HalvesAreReducedInFloat32AndTheSameBitsEveryTime) {
  // On every layout, over one and two axes, from other nodes and from this one; large enough for two stages.
  for (const DType dtype : {kBFloat16, kFloat16}) {
    const auto parts = [&](const DeviceMesh& mesh, const Placements& placements, const Shape& shape) {
      return from_local(
          mesh, placements,
          [&](int64_t device, const Shape& local) {
            HostTensor part(local, kFloat32);
            std::mt19937_64 random(static_cast<uint64_t>(device));
            for (int64_t e = 0; e < part.num_elements(); ++e) {
              const float x = static_cast<float>(random() % 2001) - 1000;
              std::memcpy(part.mutable_bytes() + e * 4, &x, 4);
            }
            return part.to(dtype);
          },
          shape);
    };
    for (const bool large : {false, true}) {
      const Shape shape = large ? Shape{70, 300} : Shape{9, 3};
      const int repetitions = large ? 20 : 200;
      const Tensor one = parts(cpu_mesh({8}), {P()}, shape);
      const Tensor two = parts(cpu_mesh({4, 2}), {P(), P()}, shape);
      const HostTensor first = one.redistribute({R()}).to_host();
      // The reference: float32 in mesh order, rounded once.
      for (int64_t e = 0; e < 9; ++e) {
        float sum = 0;
        for (int64_t device = 0; device < 8; ++device) sum += one.to_host_local(device).element<float>(e);
        EXPECT_EQ(first.element<float>(e), HostTensor::full({1}, sum).to(dtype).element<float>(0));
      }
      EXPECT_TRUE(two.redistribute({R(), R()}).to_host().equals(first));
      EXPECT_TRUE(one.redistribute({S(1)}).to_host().equals(first));
      for (int i = 0; i < repetitions; ++i) {
        ASSERT_TRUE(one.redistribute({R()}).to_host().equals(first)) << i;
        ASSERT_TRUE(two.redistribute({S(0), R()}).to_host().equals(first)) << i;
      }
    }
  }
}

int64_t entries_of(const char* folder) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) count += entry.path().empty() ? 0 : 1;
  return count;
}

TEST_F(LayoutCase, FiveHundredMeshesOverTheSameDevicesTakeNoResourcesOfTheirOwn) {
  const HostTensor value = iota({8, 2});
  const auto use = [&](const DeviceMesh& mesh) {
    const Tensor x = distribute(value, mesh, {S(0), R()}).redistribute({R(), S(0)});
    EXPECT_TRUE(x.to_host().equals(value));
  };
  use(cpu_mesh({2, 4}, {"first", "second"}));
  client().synchronize();
  const int64_t threads = entries_of("/proc/self/task"), files = entries_of("/proc/self/fd");
  for (int i = 0; i < 500; ++i) use(cpu_mesh({2, 4}, {"a" + std::to_string(i), "b"}));
  client().synchronize();
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
  EXPECT_EQ(entries_of("/proc/self/fd"), files);
  // Under MPI all groups of devices share the communicators that the job started with: transfers are point to point.
  const int64_t messages = client().stats().control_messages;
  use(cpu_mesh({2, 4}, {"a7", "b"}));
  EXPECT_LE(client().stats().control_messages - messages, 40);
}

TEST_F(LayoutCase, AMeshIsCutMergedAndCompared) {
  const DeviceMesh mesh = cpu_mesh({2, 2, 2}, {"dp", "cp", "tp"});
  const HostTensor value = iota({8, 4});
  const Tensor x = distribute(value, mesh, {S(0), S(0), S(1)});
  // The same devices hold the same rows when dp and cp are one axis: nothing moves.
  const DeviceMesh flat = mesh.flatten({"dp", "cp"}, "dp_cp");
  const Tensor y = x.redistribute(flat, {S(0), S(1)});
  expect_tensor(y, {S(0), S(1)}, value);
  EXPECT_EQ(redistribute_bytes(value.shape(), kFloat32, x.layout(), y.layout()), 0);
  EXPECT_EQ(flat.split("dp_cp", {2, 2}, {"dp", "cp"}), mesh);
  // Each half of the mesh by itself, and one axis of it by name.
  for (const DeviceMesh& half : mesh.unbind("dp")) {
    expect_tensor(x.redistribute(half, {R(), S(1)}), {R(), S(1)}, value);
    const DeviceMesh row = half.slice("cp", 1)["tp"];
    expect_tensor(x.redistribute(row, {S(0)}), {S(0)}, value);
  }
  EXPECT_TRUE(contains(message_of<MeshError>([&] { mesh["dp"]; }), "unbind"));
}

TEST_F(LayoutCase, ExplainShowsTheWayOfATensor) {
  const Tensor x = distribute(iota({4, 8}), cpu_mesh({4}, {"tp"}), {P()});
  client().set_explain(true);
  const Tensor y = x.redistribute({S(0)});
  const Tensor z = y.redistribute({S(1)});
  client().set_explain(false);
  const std::string text = explain(z);
  for (const char* part :
       {"from_host", "fold sum over tp {Partial(sum)} -> {Shard(0)}", "copy {Shard(0)} -> {Shard(1)}", "peak memory",
        "2 redistributions move", "redistribute_data_test.cc:"}) {
    EXPECT_TRUE(contains(text, part)) << part << " isn't in\n" << text;
  }
}

}  // namespace
}  // namespace dtorch::test
