// Created tensors: the value that was asked for, on every layout, each device its own part.
#include <gtest/gtest.h>

#include "dtorch/dtorch.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using CreatedValuesTest = ClusterTest;

// Not Partial(avg): the sum of three equal values, divided by 3, may be rounded.
std::vector<Placements> exact_placements() {
  return {{Replicate()}, {Shard(0)}, {Shard(1)}, {Partial()}, {Partial(kMax)}, {Partial(kMin)}};
}

TEST_F(CreatedValuesTest, RandomValuesAreBitwiseTheSameOnAnyLayout) {
  const auto make = [](const TensorOptions& options) {
    manual_seed(42);
    return std::vector<Tensor>{rand({7, 5}, options), randn({7, 5}, options), randint(-9, 1000, {7, 5}, options)};
  };
  for (DType dtype : {kFloat32, kFloat64}) {
    const std::vector<Tensor> one = make({.dtype = dtype});
    for (const Shape& mesh_shape : {Shape{2}, Shape{3}, Shape{4}}) {
      for (const Placements& placements : exact_placements()) {
        const std::vector<Tensor> many = make({.mesh = cpu_mesh(mesh_shape), .placements = placements, .dtype = dtype});
        for (size_t i = 0; i < one.size(); ++i) {
          EXPECT_EQ(difference(many[i].to_host(), one[i].to_host(), 0), "") << i << " on " << mesh_shape << placements;
        }
      }
    }
    EXPECT_FALSE(one[0].to_host().equals(rand({7, 5}, {.dtype = dtype}).to_host()))
        << "a second call gives other values";
  }
}

TEST_F(CreatedValuesTest, APartialOfOnesIsWorthOneWhateverTheReduction) {
  const DeviceMesh mesh = cpu_mesh({2, 2});
  for (const Placement& first : {Partial(), Partial(kAvg), Partial(kMax), Partial(kMin), Shard(0)}) {
    for (const Placement& second : {Partial(), Partial(kAvg), Partial(kMax), Partial(kMin), Replicate()}) {
      const Tensor x = full({3, 2}, -2.5, {.mesh = mesh, .placements = {first, second}});
      EXPECT_EQ(x.placements(), (Placements{first, second}));
      EXPECT_EQ(difference(x.to_host(), HostTensor::full<float>({3, 2}, -2.5f), 0), "") << x.placements();
    }
  }
}

TEST_F(CreatedValuesTest, RangesAndIdentitiesAreMadePartByPart) {
  const DeviceMesh mesh = cpu_mesh({3});
  const Tensor range = arange(7, {.mesh = mesh, .placements = {Shard(0)}});
  EXPECT_EQ(range.dtype(), kInt64);
  EXPECT_EQ(check_tensor(range, seq({7}), 0), "");
  const Tensor fractional = arange(-1.0, 2.0, 0.3);
  EXPECT_EQ(fractional.dtype(), kFloat32);
  EXPECT_EQ(fractional.shape(), Shape{10});
  EXPECT_EQ(check_tensor(arange(-1.0, 2.0, 0.3, {.mesh = mesh, .placements = {Shard(0)}}), fractional.to_host(), 0),
            "");
  EXPECT_EQ(arange(5, 0, -2).to_host().to_vector<int64_t>(), (std::vector<int64_t>{5, 3, 1}));
  EXPECT_EQ(arange(2, 5, {.dtype = kFloat64}).to_host().to_vector<double>(), (std::vector<double>{2, 3, 4}));
  EXPECT_EQ(check_tensor(eye(2, 3, {.mesh = mesh, .placements = {Shard(1)}}),
                         HostTensor::of<float>({2, 3}, {1, 0, 0, 0, 1, 0}), 0),
            "");
  EXPECT_THROW(arange(0, 5, -1), UserError);
  EXPECT_THROW(arange(0, 5, 0), UserError);
}

TEST_F(CreatedValuesTest, PartsGivenByDeviceAreTakenAsTheyAre) {
  const DeviceMesh mesh = cpu_mesh({2});
  const auto one = [](int64_t device, const Shape& local) {
    return HostTensor::full(local, static_cast<float>(device + 1));
  };
  const Tensor pending = from_local(mesh, {Partial()}, one, {4});
  EXPECT_EQ(pending.to_host().to_vector<float>(), std::vector<float>(4, 3.0f));
  EXPECT_EQ(pending.to_host_local(1).to_vector<float>(), std::vector<float>(4, 2.0f));
  const Tensor uneven = from_local(mesh, {Shard(0)}, one, {3});
  EXPECT_EQ(uneven.to_host().to_vector<float>(), (std::vector<float>{1, 1, 2}));
  EXPECT_THROW(from_local(mesh, {Shard(0)}, [](int64_t, const Shape&) { return HostTensor({5}, kFloat32); }, {3}),
               ShapeError);
  EXPECT_THROW(
      from_local(mesh, {Shard(0)},
                 [](int64_t device, const Shape& local) { return HostTensor(local, device == 0 ? kFloat32 : kInt64); },
                 {3}),
      DTypeError);
}

TEST_F(CreatedValuesTest, LikeTakesShapeLayoutAndDtype) {
  const Tensor x = full({5, 3}, 1, {.mesh = cpu_mesh({2, 2}), .placements = {Shard(0), Partial()}, .dtype = kFloat64});
  const Tensor y = full_like(x, 4);
  EXPECT_EQ(y.dtype(), kFloat64);
  EXPECT_EQ(y.placements(), (Placements{Shard(0), Replicate()}));
  EXPECT_EQ(check_tensor(y, HostTensor::full<double>({5, 3}, 4.0), 0), "");
  EXPECT_EQ(zeros_like(x, kInt64).dtype(), kInt64);
}

TEST_F(CreatedValuesTest, WrongCallsAreRefusedAtTheCall) {
  EXPECT_THROW(zeros({2, -1}), ShapeError);
  EXPECT_THROW(zeros({4, 4}, {.mesh = cpu_mesh({2, 2}), .placements = {Shard(0)}}), MeshError);
  EXPECT_THROW(zeros({4}, {.mesh = cpu_mesh({2}), .placements = {Shard(1)}}), ShapeError);
  EXPECT_THROW(rand({4}, {.dtype = kInt64}), DTypeError);
  EXPECT_THROW(randint(3, 3, {4}), UserError);
  EXPECT_EQ(randint(3, {4}).dtype(), kInt64);
}

}  // namespace
}  // namespace dtorch::test
