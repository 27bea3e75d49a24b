// What operators without inputs make: the same logical value on every layout, each device its own part.
#include <gtest/gtest.h>

#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using CreationTest = KernelTest;

std::vector<TensorOptions> layouts() {
  std::vector<TensorOptions> all;
  for (int64_t devices : {2, 3}) {
    for (const Placement& placement :
         {Replicate(), Shard(0), Shard(1), Partial(), Partial(kAvg), Partial(kMax), Partial(kMin)}) {
      all.push_back({.mesh = cpu_mesh({devices}), .placements = {placement}});
    }
  }
  for (const Placement& first : {Replicate(), Shard(0), Shard(1), Partial()}) {
    for (const Placement& second : {Replicate(), Shard(0), Shard(1), Partial()}) {
      all.push_back({.mesh = cpu_mesh({2, 2}, {"dp", "tp"}), .placements = {first, second}});
    }
  }
  all.push_back({.mesh = cpu_mesh({2, 2}, {"dp", "tp"}), .placements = {Shard(0), Shard(0)}, .order = {"tp", "dp"}});
  return all;
}

// The value of one device on every layout, bit for bit; but the mean of three equal parts may be rounded.
void expect_same_everywhere(const std::string& name, const std::function<Tensor(TensorOptions)>& make) {
  manual_seed(3);
  const HostTensor one = make({}).to_host();
  for (const TensorOptions& options : layouts()) {
    manual_seed(3);
    const Tensor tensor = make(options);
    EXPECT_EQ(tensor.placements(), options.placements);
    EXPECT_EQ(check_tensor(tensor, one, options.placements[0].is_partial(kAvg) ? 1e-6 : 0), "")
        << name << " " << options.placements.str() << " on " << options.mesh.sizes_str();
  }
}

TEST_F(CreationTest, ConstantsAreTheSameOnEveryLayout) {
  for (const Shape& shape : {Shape{5, 3}, Shape{1, 4}, Shape{0, 2}}) {
    expect_same_everywhere("full", [&](TensorOptions options) { return full(shape, 2.5, options); });
    expect_same_everywhere("ones", [&](TensorOptions options) { return ones(shape, options); });
    expect_same_everywhere("zeros", [&](TensorOptions options) {
      options.dtype = kInt64;
      return zeros(shape, options);
    });
  }
}

TEST_F(CreationTest, SequencesAndDiagonalsAreTheSameOnEveryLayout) {
  expect_same_everywhere("eye", [](TensorOptions options) { return eye(5, 3, options); });
  for (const Placement& placement : {Replicate(), Shard(0), Partial()}) {
    const Tensor counted = arange(3, 20, 2, {.mesh = cpu_mesh({4}), .placements = {placement}});
    EXPECT_EQ(check_tensor(counted, HostTensor::of<int64_t>({9}, {3, 5, 7, 9, 11, 13, 15, 17, 19}), 0), "");
  }
}

TEST_F(CreationTest, RandomValuesAreTheSameOnEveryLayout) {
  expect_same_everywhere("rand", [](TensorOptions options) { return rand({5, 3}, options); });
  expect_same_everywhere("randn", [](TensorOptions options) { return randn({6, 5}, options); });
  expect_same_everywhere("randint", [](TensorOptions options) { return randint(-4, 9, {5, 3}, options); });
}

TEST_F(CreationTest, HostDataIsTheSameOnEveryLayout) {
  expect_same_everywhere("from_host", [](TensorOptions options) { return from_host(iota({5, 3}), options); });
}

TEST_F(CreationTest, LikeTakesShapeAndLayoutAndReplicatesWhatIsPending) {
  const Tensor sharded = distribute(iota({5, 3}), cpu_mesh({3}), {Shard(0)});
  EXPECT_EQ(ones_like(sharded).layout(), sharded.layout());
  EXPECT_EQ(check_tensor(full_like(sharded, 4), HostTensor::full({5, 3}, 4.0f), 0), "");
  const Tensor pending = distribute(iota({5, 3}), cpu_mesh({3}), {Partial()});
  EXPECT_EQ(zeros_like(pending).placements(), Placements{Replicate()});
  EXPECT_EQ(zeros_like(pending, kInt32).dtype(), kInt32);
}

}  // namespace
}  // namespace dtorch::test
