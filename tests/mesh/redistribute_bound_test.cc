// Plans against the lower bound of bytes moved, over all pairs of placements.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "mesh/redistribute_plan.h"
#include "tests/mesh/lower_bound.h"

namespace dtorch::test {
namespace {

TEST(RedistributeBound, IsWhatARingMovesForOneAxis) {
  for (int64_t n : {2, 4, 8}) {
    const DeviceMesh mesh = init_device_mesh("cpu", {n});
    const auto least = [&](const Placement& from, const Placement& to) {
      return least_elements({8, 8}, Layout(mesh, {from}, 2), Layout(mesh, {to}, 2));
    };
    EXPECT_EQ(least(Partial(), Replicate()), 2 * (n - 1) * 64);
    EXPECT_EQ(least(Partial(), Shard(1)), (n - 1) * 64);
    EXPECT_EQ(least(Shard(0), Replicate()), (n - 1) * 64);
    EXPECT_EQ(least(Shard(0), Shard(1)), 64 - 64 / n);
    EXPECT_EQ(least(Replicate(), Shard(0)), 0);
    EXPECT_EQ(least(Replicate(), Partial()), 0);
    EXPECT_EQ(least(Partial(), Partial(kAvg)), 2 * (n - 1) * 64);
  }
}

TEST(RedistributeBound, IsReachedByEveryPairOnOneAxisAndNearlyByEveryPairOnTwo) {
  for (const DeviceMesh& mesh : table_meshes()) {
    const double gate = mesh.num_axes() == 1 ? 1.0 : 1.5;
    for (const PairCost& pair : all_pair_costs(mesh, table_shape())) {
      EXPECT_GE(pair.moved, pair.least) << pair.from << " -> " << pair.to << " on " << mesh << ": the bound is wrong";
      EXPECT_LE(pair.ratio(), gate) << pair.from << " -> " << pair.to << " on " << mesh;
    }
  }
}

TEST(RedistributeBound, IsReachedWithoutGatheringWhenShardsOfTwoAxesAreSwapped) {
  for (const Shape& sizes : {Shape{2, 2}, Shape{2, 4}, Shape{4, 4}}) {
    const DeviceMesh mesh = init_device_mesh("cpu", sizes);
    const Layout from(mesh, {Shard(0), Shard(1)}, 2);
    const Layout to(mesh, {Shard(1), Shard(0)}, 2);
    EXPECT_EQ(redistribute_bytes({16, 16}, kFloat32, from, to), 4 * least_elements({16, 16}, from, to));
  }
}

TEST(RedistributeBound, SharesAFoldAmongTheReplicasOfItsParts) {
  // Four parts, each on two devices: the replicas fold one half each, and what they made is gathered.
  const DeviceMesh mesh = init_device_mesh("cpu", {4, 2}, {"dp", "tp"});
  const Layout from(mesh, {Partial(), Replicate()}, 1);
  EXPECT_EQ(redistribute_bytes({1 << 16}, kFloat32, from, Layout::replicated(mesh)), 4 * (3 + 7) * (1 << 16));
  const RedistributePlan plan = make_redistribute_plan(intern_meta({1 << 16}, kFloat32, from),
                                                       intern_meta({1 << 16}, kFloat32, Layout::replicated(mesh)));
  ASSERT_EQ(plan.stages.size(), 2u);
  EXPECT_EQ(plan.stages[0].to->layout.placements(), (Placements{Shard(0), Shard(0)}));
}

TEST(RedistributeBound, TableInDocsIsUpToDate) {
  const char* root = std::getenv("DTORCH_SOURCE_DIR");
  std::ifstream file(std::string(root != nullptr ? root : ".") + "/docs/redistribution.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == redistribution_table())
      << "run build/bin/redistribute_table docs/redistribution.md and commit the result";
}

}  // namespace
}  // namespace dtorch::test
